// The window: the planes of one field that are in memory now, or the part of them inside a frame.
//
// A field that its own update reads at neighbours has two rings, one for even and one for odd levels. Plane z of a
// ring lives in slot z mod planes(); slots have the layout of a record on disk, so transfers need no copy:
//
//     slot:  | rows of the frame, one behind the other | tail: crc32c, zeros up to 4 KiB |
//
// The frame is the whole plane, or the rows and columns of a block. Cells are addressed by their place in the grid whatever the
// frame: origin() is where cell (0, 0) of a plane would lie, and the row pitch is that of the frame. Blocks that follow each
// other may shift their planes, so that the first planes of the next one come to lie behind the last ones of this one.
//
// Guards before the first and behind the last slot keep the few bytes readable that kernels load beyond a plane.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>

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

  long pitch_cells() const { return static_cast<long>(pitch_bytes / item_bytes); }
  std::size_t tail_bytes() const { return record_bytes - plane_bytes; }
  long first_plane() const { return radius_z; }     ///< first plane that is updated
  long end_plane() const { return nz - radius_z; }  ///< one past the last
  long first_row() const { return radius_y; }
  long end_row() const { return ny - radius_y; }
};

/// Rows y0 <= y < y1 and cells x0 <= x < x1 of a plane; x0 and x1 are multiples of 64 bytes, padding included.
struct Cut {
  long y0 = 0, y1 = 0, x0 = 0, x1 = 0;

  long rows() const { return y1 - y0; }
  long columns() const { return x1 - x0; }
  bool empty() const { return y0 >= y1 || x0 >= x1; }
  bool operator==(const Cut &) const = default;
};

inline Cut whole_plane(const Grid &grid) { return Cut{0, grid.ny, 0, grid.pitch_cells()}; }

inline Cut intersection(const Cut &a, const Cut &b) {
  return Cut{std::max(a.y0, b.y0), std::min(a.y1, b.y1), std::max(a.x0, b.x0), std::min(a.x1, b.x1)};
}

/// A cyclic buffer of `planes` slots inside memory owned by a Window.
class Ring {
 public:
  Ring() = default;
  Ring(std::byte *first, long planes, std::size_t slot_bytes)
      : first_(first), planes_(planes), slot_bytes_(slot_bytes) {}

  long planes() const { return planes_; }
  long slot(long z) const {
    assert(z >= 0);
    return z % planes_;
  }
  /// First byte of the slot of plane z.
  std::byte *plane(long z) const { return first_ + static_cast<std::size_t>(slot(z)) * slot_bytes_; }

 private:
  std::byte *first_ = nullptr;
  long planes_ = 1;
  std::size_t slot_bytes_ = 0;
};

/// Two rings in one huge-page allocation, or in memory of the caller. Every byte of the former is resident when the
/// constructor's caller has touched it.
class Window {
 public:
  static constexpr std::size_t guard_bytes = 4096;

  /// `given`, where it is not null, is at least bytes(...) of memory that outlives this, aligned to 64 bytes.
  Window(const Grid &grid, std::array<long, 2> ring_planes, std::size_t slot_bytes, std::byte *given = nullptr)
      : grid_(grid),
        slot_bytes_(slot_bytes),
        size_(bytes(ring_planes, slot_bytes)),
        memory_(given == nullptr ? size_ : 0),
        data_(given == nullptr ? memory_.data() : given) {
    std::byte *next = data_ + guard_bytes;
    for (std::size_t parity = 0; parity < 2; ++parity) {
      rings_[parity] = Ring(next, ring_planes[parity], slot_bytes);
      next += static_cast<std::size_t>(ring_planes[parity]) * slot_bytes + guard_bytes;
    }
    set_frame(whole_plane(grid));
  }

  /// A window whose slots hold whole records.
  Window(const Grid &grid, std::array<long, 2> ring_planes) : Window(grid, ring_planes, grid.record_bytes) {}

  /// Bytes a window of these rings takes, guards included.
  static std::size_t bytes(std::array<long, 2> ring_planes, std::size_t slot_bytes) {
    return static_cast<std::size_t>(ring_planes[0] + ring_planes[1]) * slot_bytes + 3 * guard_bytes;
  }

  /// From now on slots are taken to hold this part of their planes, plane z lying in slot (z + shift) mod ring.
  void set_frame(const Cut &frame, long shift = 0) {
    frame_ = frame;
    shift_ = shift;
    pitch_bytes_ = static_cast<std::size_t>(frame.columns()) * grid_.item_bytes;
  }
  const Cut &frame() const { return frame_; }
  std::size_t pitch_bytes() const { return pitch_bytes_; }
  long pitch_cells() const { return frame_.columns(); }
  /// Number of plane z among all planes of all blocks.
  long place(long z) const { return z + shift_; }

  /// Whether a slot has room for that frame and a record's tail.
  bool has_room(const Cut &frame) const {
    const auto cells = static_cast<std::size_t>(frame.rows() * frame.columns());
    return cells * grid_.item_bytes + grid_.tail_bytes() <= slot_bytes_;
  }

  /// Where cell (y, x) of plane z at `level` lies; (0, 0) may lie outside the slot.
  std::byte *cell(long level, long z, long y, long x) const {
    const auto item = static_cast<std::ptrdiff_t>(grid_.item_bytes);
    return ring(level).plane(place(z)) + ((y - frame_.y0) * frame_.columns() + x - frame_.x0) * item;
  }
  std::byte *origin(long level, long z) const { return cell(level, z, 0, 0); }

  /// Where the checksum of plane z lies once the frame reaches its last row.
  std::byte *tail(long level, long z) const {
    return ring(level).plane(place(z)) + static_cast<std::size_t>(frame_.rows()) * pitch_bytes_;
  }

  const Ring &ring(long level) const { return rings_[static_cast<std::size_t>(level & 1)]; }
  std::size_t slot_bytes() const { return slot_bytes_; }

  /// What was the ring of odd levels is that of even ones from now on, and the other way round.
  void swap_rings() { std::swap(rings_[0], rings_[1]); }

  std::byte *data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const Grid grid_;
  const std::size_t slot_bytes_;
  const std::size_t size_;
  AlignedMemory memory_;  // empty when the memory is the caller's
  std::byte *const data_;
  std::array<Ring, 2> rings_;
  Cut frame_;
  long shift_ = 0;
  std::size_t pitch_bytes_ = 0;
};

}  // namespace outcrop
