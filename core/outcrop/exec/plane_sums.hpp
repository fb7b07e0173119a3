// Checksums of planes, taken in parts while the rows are in a cache.
//
// A tile updates some rows of a plane at level 1 and, maybe another tile, at the last level. Right after, the rows it has
// read (as they came from the disk) and those it has written (as they go back) are still in the first caches, where a
// checksum costs a third of what it costs from memory. CRCs are linear: that of the plane is the exclusive or of those of
// its parts, each moved over the bytes that follow it. So parts may come in any order, from any thread:
//
//     |..part a..|....part b....|..part c..|        CRC = CRC(a) * x^(8|bc|) + CRC(b) * x^(8|c|) + CRC(c)
//
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "outcrop/exec/window.hpp"

namespace outcrop {

class PlaneSums {
 public:
  /// Room for the sums of all planes of `grid`.
  explicit PlaneSums(const Grid &grid);

  /// Forgets everything.
  void clear();

  /// Adds the part `cut` of plane z, whose cell (0, 0) lies at `origin` and whose rows are `pitch_bytes` apart. Every cell of a
  /// plane, padding included, must be added exactly once.
  void add(long z, const std::byte *origin, std::size_t pitch_bytes, const Cut &cut);

  /// Whether every byte of plane z has been added.
  bool is_whole(long z) const { return bytes_[index(z)].load(std::memory_order_relaxed) == grid_.plane_bytes; }

  /// CRC32C of plane z once it is whole.
  std::uint32_t value(long z) const { return sums_[index(z)].load(std::memory_order_relaxed); }

 private:
  static std::size_t index(long z) { return static_cast<std::size_t>(z); }

  const Grid grid_;
  std::vector<std::atomic<std::uint32_t>> sums_;
  std::vector<std::atomic<std::size_t>> bytes_;  // added so far
  std::vector<std::uint32_t> row_factors_;       // [rows]: what moving over that many rows needs
};

}  // namespace outcrop
