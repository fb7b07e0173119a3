// The window: the planes of one field that are in memory now.
//
// A field that its own update reads at neighbours has two rings, one for even and one for odd levels. Plane z of a
// ring lives in slot z mod planes(); slots have the layout of a record on disk, so transfers need no copy:
//
//     slot:  | plane: ny rows of pitch bytes | crc32c | zeros up to 4 KiB |
//
// Guards before the first and behind the last slot keep the few bytes readable that kernels load beyond a plane.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "outcrop/base/aligned.hpp"

namespace outcrop {

/// Extents of the grid and of its planes in memory. Rows are `pitch_bytes` apart, records `record_bytes`.
struct Grid {
  long nz = 0, ny = 0, nx = 0;
  long radius_z = 0, radius_y = 0;  ///< thickness of the fixed rim
  long skew = 1;                    ///< planes (and rows) a dependency may move per level: max(1, radius)
  std::size_t item_bytes = 0;
  std::size_t pitch_bytes = 0;
  std::size_t plane_bytes = 0;
  std::size_t record_bytes = 0;

  long first_plane() const { return radius_z; }     ///< first plane that is updated
  long end_plane() const { return nz - radius_z; }  ///< one past the last
  long first_row() const { return radius_y; }
  long end_row() const { return ny - radius_y; }
};

/// A cyclic buffer of `planes` records inside memory owned by a Window.
class Ring {
 public:
  Ring() = default;
  Ring(std::byte *first, long planes, std::size_t record_bytes)
      : first_(first), planes_(planes), record_bytes_(record_bytes) {}

  long planes() const { return planes_; }
  long slot(long z) const {
    assert(z >= 0);
    return z % planes_;
  }
  std::byte *plane(long z) const { return first_ + static_cast<std::size_t>(slot(z)) * record_bytes_; }

 private:
  std::byte *first_ = nullptr;
  long planes_ = 1;
  std::size_t record_bytes_ = 0;
};

/// Two rings in one huge-page allocation. Every byte is resident when the constructor's caller has touched it.
class Window {
 public:
  static constexpr std::size_t guard_bytes = 4096;

  Window(const Grid &grid, std::array<long, 2> ring_planes) : memory_(bytes(grid, ring_planes)) {
    std::byte *next = memory_.data() + guard_bytes;
    for (std::size_t parity = 0; parity < 2; ++parity) {
      rings_[parity] = Ring(next, ring_planes[parity], grid.record_bytes);
      next += static_cast<std::size_t>(ring_planes[parity]) * grid.record_bytes + guard_bytes;
    }
  }

  /// Bytes a window of these rings takes, guards included.
  static std::size_t bytes(const Grid &grid, std::array<long, 2> ring_planes) {
    return static_cast<std::size_t>(ring_planes[0] + ring_planes[1]) * grid.record_bytes + 3 * guard_bytes;
  }

  const Ring &ring(long level) const { return rings_[static_cast<std::size_t>(level & 1)]; }
  std::byte *data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }

 private:
  AlignedMemory memory_;
  std::array<Ring, 2> rings_;
};

}  // namespace outcrop
