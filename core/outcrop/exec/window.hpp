// The window holds the planes that are in memory at one moment, for all fields. Each plane is in memory either as a
// whole or in part. The part of a plane that is in memory is called the frame.
//
// Each copy of a field (problem.hpp) has a ring of slots. Plane z of a ring is in slot z mod planes(). A slot has the
// layout of a record on disk. So a plane is transferred directly between its slot and the disk, without another copy:
//
//     slot:  | rows of the frame, one after the other | tail: crc32c, seal, zeros up to 4 KiB |
//
// The frame is the whole plane, or the rows and columns of a block. origin() is the address that cell (0, 0) would have
// if the frame contained this cell. So one formula gives the address of a cell for all frames. A frame with rows of
// neighbouring ranks (problem.hpp) begins at a negative row or ends behind the plane. Usually, the tail directly
// follows the last row. The tail is at the end of the slot in two cases: the frame does not end with the last row of
// the plane, or zeros follow the last row on disk. At the end of the slot, the tail is aligned like the slot.
//
// A block can shift its planes against the previous block. The first planes of a shifted block use the slots after the
// last planes of the previous block. If all planes of a field stay in memory, the rings of this field have no frames
// and no shifts. Planes are counted by position (problem.hpp).
//
// Kernels load some bytes before and behind a plane. So the window has unused bytes ("guards") before the first slot
// and behind the last slot of each ring.
//
// The size of a large slot is 512 bytes more than a multiple of the page size. So the distance between the start of a
// slot and the start of its page grows by 512 bytes from slot to slot. Without these 512 bytes, cells at the same place
// in neighbouring planes would compete for the 8 lines of one set of the first-level cache. A stencil of radius 4 would
// be a third slower. Small slots follow each other without a gap, so that one transfer can move several planes. In a
// window with more than 8 rings, the distance between the first slot of a ring and the start of its page also grows by
// 512 bytes from ring to ring.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/problem.hpp"

namespace outcrop {

/// The distance between the start of a slot and the start of its page grows by this number of bytes from slot to slot.
/// Most devices accept direct I/O with memory that is aligned to `shift_bytes` bytes.
constexpr std::size_t shift_bytes = 512;

/// Returns the size of a slot that holds `bytes` bytes. Slots are large if they hold more than 512 KiB.
constexpr std::size_t slot_bytes_for(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, AlignedMemory::page_bytes);
  return whole > (std::size_t{512} << 10) ? whole + shift_bytes : whole;
}

/// The sizes of a ring.
struct RingSpec {
  long planes = 1;
  std::size_t slot_bytes = 0;  ///< the distance between slots
  /// true if the ring has a slot for each plane of the grid, and each slot always holds a whole plane
  bool resident = false;
};

/// Returns rings with slots that are aligned for direct I/O. `memory_alignment` is the alignment that direct I/O needs.
/// If `memory_alignment` is more than 512 bytes, all slots begin at page boundaries.
inline std::vector<RingSpec> rings_for_direct_io(std::vector<RingSpec> rings, std::size_t memory_alignment) {
  if (memory_alignment > shift_bytes)
    for (RingSpec &ring : rings) ring.slot_bytes = round_down(ring.slot_bytes, AlignedMemory::page_bytes);
  return rings;
}

/// A cyclic buffer of slots. The memory of the slots belongs to a Window.
class Ring {
 public:
  Ring(std::byte *first, const RingSpec &spec) : first_(first), spec_(spec) {}

  long planes() const { return spec_.planes; }
  std::size_t slot_bytes() const { return spec_.slot_bytes; }
  bool resident() const { return spec_.resident; }
  long slot(long place) const {
    assert(place >= 0);
    return place % spec_.planes;
  }
  /// Returns the first byte of a slot.
  std::byte *plane(long place) const { return first_ + static_cast<std::size_t>(slot(place)) * spec_.slot_bytes; }

 private:
  std::byte *first_;
  RingSpec spec_;
};

/// Owns all rings. The memory of the rings is either one allocation with huge pages, or memory of the caller. The
/// constructor does not access the memory, so the system provides no pages yet.
class Window {
 public:
  static constexpr std::size_t page_bytes = AlignedMemory::page_bytes, guard_bytes = 4096;
  // number of lines in a set of the first-level cache of most processors
  static constexpr std::size_t aligned_rings = 8;

  /// Divides memory among the rings. If `given` is null, the constructor allocates the memory. If `given` is not null,
  /// it is memory of the caller: at least bytes(rings) bytes, aligned to 64 bytes. The given memory must outlive this
  /// object.
  Window(const Grid &grid, const std::vector<RingSpec> &rings, std::byte *given = nullptr)
      : grid_(grid),
        size_(bytes(rings)),
        memory_(given == nullptr ? size_ : 0),
        data_(given == nullptr ? memory_.data() : given) {
    std::size_t used = 0, place_in_page = 0;
    for (const RingSpec &spec : rings) {
      std::size_t first = used + guard_bytes;
      if (rings.size() > aligned_rings) {
        first = round_up(first - place_in_page, page_bytes) + place_in_page;
        place_in_page = (place_in_page + shift_bytes) % page_bytes;
      }
      rings_.emplace_back(data_ + first, spec);
      used = first + static_cast<std::size_t>(spec.planes) * spec.slot_bytes;
    }
    set_frame(whole_plane(grid));
  }

  /// Returns the number of bytes of a window with these rings, guards included.
  static std::size_t bytes(const std::vector<RingSpec> &rings) {
    std::size_t sum = guard_bytes;
    for (const RingSpec &spec : rings)
      sum += static_cast<std::size_t>(spec.planes) * spec.slot_bytes + gap_bytes(rings.size());
    return sum;
  }

  /// Returns the maximum number of unused bytes behind each ring. The window has `rings` rings.
  static constexpr std::size_t gap_bytes(std::size_t rings) {
    return guard_bytes + (rings > aligned_rings ? page_bytes : 0);
  }

  /// Sets the frame. After this call, each slot holds the cells of `frame` of its plane. Plane z is then in slot (z +
  /// shift) mod planes().
  void set_frame(const Rectangle &frame, long shift = 0) {
    frame_ = frame;
    shift_ = shift;
    begin_row_ = std::min(0L, frame.y0);
    end_row_ = std::max(grid_.ny, frame.y1);
    pitch_bytes_ = static_cast<std::size_t>(frame.columns()) * grid_.item_bytes;
  }
  const Rectangle &frame() const { return frame_; }
  /// The rows begin_row() <= y < end_row() are all rows of the plane and, in addition, the rows of neighbouring ranks
  /// that the frame contains.
  long begin_row() const { return begin_row_; }
  long end_row() const { return end_row_; }
  bool ends_with_plane() const { return end_row_ == grid_.ny; }
  std::size_t pitch_bytes() const { return pitch_bytes_; }
  long pitch_cells() const { return frame_.columns(); }
  /// Planes use the slots of a ring one after another. Returns the number of plane z in the sequence of planes that use
  /// the slots.
  long place(std::size_t ring, long z) const { return rings_[ring].resident() ? z : z + shift_; }

  /// Returns whether the slots have room for this frame and the tail of a record.
  bool has_room(const Rectangle &frame) const {
    const auto cells = static_cast<std::size_t>(frame.rows() * frame.columns());
    const std::size_t needed = cells * grid_.item_bytes + grid_.tail_bytes();
    return std::ranges::all_of(rings_, [&](const Ring &ring) { return needed <= ring.slot_bytes(); });
  }

  /// Returns the address of cell (y, x) of plane z in a ring. The address of a cell outside the frame can be outside
  /// the slot.
  std::byte *cell(std::size_t ring, long z, long y, long x) const {
    const auto item = static_cast<std::ptrdiff_t>(grid_.item_bytes);
    std::byte *first = rings_[ring].plane(place(ring, z));
    if (rings_[ring].resident()) {
      assert(pitch_bytes_ == grid_.pitch_bytes && begin_row_ == 0 && ends_with_plane());
      return first + (y * grid_.pitch_cells() + x) * item;
    }
    return first + ((y - frame_.y0) * frame_.columns() + x - frame_.x0) * item;
  }
  std::byte *origin(std::size_t ring, long z) const { return cell(ring, z, 0, 0); }

  /// Returns the address of row begin_row() of plane z. A kernel counts rows from begin_row().
  std::byte *first_row(std::size_t ring, long z) const { return cell(ring, z, begin_row_, 0); }

  /// Returns true if the tail of a record directly follows the last row of the plane in the slot.
  bool tail_follows(std::size_t ring) const {
    return (rings_[ring].resident() || frame_.y1 == grid_.ny) && !grid_.has_zero_rows();
  }

  /// Returns the address of the checksum of plane z.
  std::byte *tail(std::size_t ring, long z) const {
    if (tail_follows(ring)) return cell(ring, z, grid_.ny - 1, frame_.x0) + pitch_bytes_;
    return rings_[ring].plane(place(ring, z)) + rings_[ring].slot_bytes() - grid_.tail_bytes();
  }

  const Ring &ring(std::size_t ring) const { return rings_[ring]; }
  std::size_t rings() const { return rings_.size(); }

  /// Exchanges the first and the second ring.
  void swap_rings() { std::swap(rings_[0], rings_[1]); }

  std::byte *data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  const Grid grid_;
  const std::size_t size_;
  AlignedMemory memory_;  // empty if the caller provides the memory
  std::byte *const data_;
  std::vector<Ring> rings_;
  Rectangle frame_;
  long shift_ = 0;
  long begin_row_ = 0, end_row_ = 0;
  std::size_t pitch_bytes_ = 0;
};

}  // namespace outcrop
