// Checksums of planes, taken in parts while the rows are in a cache.
//
// A tile updates rows [y0, y1) of a plane at level 1 and, maybe another tile, at the last level. Right after, the rows it has
// read (as they came from the disk) and those it has written (as they go back) are still in the first caches, where a
// checksum costs a third of what it costs from memory. The parts are joined when the whole plane is done:
//
//     rows  0 .. r-1     rim: summed when joining
//           r .. y1      part of one tile     CRC(a|b) = CRC(a) * x^(8|b|) + CRC(b)
//          y1 .. y2      part of another
//          ... ny-1      rim
//
// Parts of one plane are written by different threads at different places, and joined after the slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "outcrop/exec/window.hpp"

namespace outcrop {

class PlaneSums {
  struct Part {
    std::uint32_t crc = 0;
    std::int32_t rows = 0;
    long z = -1;
  };

 public:
  /// Room for the parts of `planes` planes in a row.
  PlaneSums(const Grid &grid, long planes);

  /// Bytes that takes.
  static std::size_t bytes(const Grid &grid, long planes) {
    return static_cast<std::size_t>(planes * grid.ny) * sizeof(Part);
  }

  /// Sums rows y0 <= y < y1 of plane z, which begins at `plane`.
  void add(long z, const std::byte *plane, long y0, long y1);

  /// CRC32C of plane z, from the parts last added; from the bytes where parts have given way to another plane's.
  std::uint32_t join(long z, const std::byte *plane) const;

  /// CRC32C of a whole plane without parts.
  static std::uint32_t sum(const Grid &grid, const std::byte *plane);

 private:
  std::size_t place(long z, long y) const { return static_cast<std::size_t>(z % planes_ * grid_.ny + y); }

  const Grid grid_;
  const long planes_;
  std::vector<Part> parts_;             // [z mod planes][first row]
  std::vector<std::uint32_t> factors_;  // [rows]: what joining that many rows needs
};

}  // namespace outcrop
