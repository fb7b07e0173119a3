// This file describes the problem that the executor solves. A problem has four parts: the extents of the grid, the
// order of the planes and rows, the fields with their copies, and the kernels that a level calls.
//
// The window moves along the streaming axis from position to position. If the streaming axis is not periodic, position
// p is plane p. If the streaming axis is periodic, the first and the last plane are neighbours in space. On a periodic
// streaming axis, the positions therefore alternate between planes from the lower end and planes from the upper end.
// Then planes that are neighbours in space have positions near each other, and a pass reads no plane twice:
//
//     position   0   1    2   3    4   5   ...
//     plane      0  n-1   1  n-2   2  n-3  ...
//
// On a periodic streaming axis, a stencil of radius r reads planes at distances of up to 2r positions. There, the skew
// is 2r positions per level.
//
// On a periodic y axis, tiles count rows alternately from the lower and the upper end ("folded rows"). Only tiles use
// this order. In memory, rows are in the order of the grid. On disk, planes and rows are in the order of the grid.
//
// Each copy of a field in memory has its own ring in the window (window.hpp):
//
//     field          copies     arrays       rings
//     read only      1          its values   one; the values never change
//     updated        1          its values   one; an update overwrites the old value
//     updated        2          its values   two, which alternate, because neighbours still read the old value
//     two levels     2          newest and   two; a step also reads the previous value
//                               previous
//     recomputed     1          none         one; values of another run that levels of a pass compute again
//
// Rings 0, 1, ... are the first copies of all fields, in the order of the fields. The following rings are the second
// copies of fields. At the beginning of a pass, the first copy of a field holds the newest value of the field.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "outcrop/kernel/kernel.h"

namespace outcrop {

/// fold() returns the position of plane or row `i` on a periodic axis of `n` planes or rows. The positions alternate
/// between the two ends of the axis. The function unfold() is the inverse of fold().
inline long fold(long i, long n) { return i < (n + 1) / 2 ? 2 * i : 2 * (n - 1 - i) + 1; }
inline long unfold(long position, long n) { return position % 2 == 0 ? position / 2 : n - 1 - position / 2; }

/// The extents of the grid and the layout of its planes in memory. `pitch_bytes` is the distance between rows, and
/// `record_bytes` is the distance between records. A plane on disk has `plane_bytes` bytes. A plane on disk first has
/// the rows of the plane. If the rank's part has fewer rows than other parts, zeros follow. These zeros exist only on
/// disk, and this rank never writes them.
///
/// If the rank has neighbouring ranks in y or z (faces.hpp), `Grid` describes only the part of this rank. The first row
/// and the first plane of the rank have the number 0. If the rim of a side has the value -2^40, a neighbouring rank
/// owns the rows or planes beyond this side. The rows of a neighbouring rank have y < 0 or y >= ny. The rows of a
/// neighbouring rank exist only in memory. A frame that is larger than the plane contains such rows. The region of a
/// block determines which rows of a neighbouring rank are updated. The planes of a neighbouring rank have z < 0 or z >=
/// nz. The slots of a block can hold such planes. In this case, the shift of the block is so large that z + shift is
/// never negative.
struct Grid {
  long nz = 0, ny = 0, nx = 0;
  long radius_z = 0, radius_y = 0;     ///< the radius of the stencil in z and y
  long rim_z_low = 0, rim_z_high = 0;  ///< number of planes at each end of the grid that no update changes
  long rim_y_low = 0, rim_y_high = 0;  ///< number of rows at each end of the grid that no update changes
  bool periodic_z = false, periodic_y = false;
  /// true if the first block of a pass has the highest rows, and the last block has the lowest rows
  bool descends = false;
  /// maximum distance, in positions, at which an update reads values of the level below; at least 1
  long skew_z = 1, skew_y = 1;
  long skew_x = 0;     ///< the same for x, in cells, rounded up to a multiple of 64 bytes; 0 if x is periodic
  long statics_z = 0;  ///< maximum distance, in positions, at which an update reads static fields
  std::size_t item_bytes = 0;
  std::size_t pitch_bytes = 0;
  std::size_t plane_bytes = 0;
  std::size_t record_bytes = 0;

  long pitch_cells() const { return static_cast<long>(pitch_bytes / item_bytes); }
  std::size_t rows_bytes() const { return static_cast<std::size_t>(ny) * pitch_bytes; }
  bool has_zero_rows() const { return plane_bytes > rows_bytes(); }
  std::size_t tail_bytes() const { return record_bytes - plane_bytes; }
  long first_plane() const { return rim_z_low; }      ///< the first plane that a step updates
  long end_plane() const { return nz - rim_z_high; }  ///< one past the last plane that a step updates
  long first_row() const { return rim_y_low; }
  long end_row() const { return ny - rim_y_high; }
  bool has_below() const { return rim_z_low < 0; }   ///< true if a neighbouring rank has the planes below plane 0
  bool has_above() const { return rim_z_high < 0; }  ///< true if a neighbouring rank has the planes above the grid

  /// Returns the number of the plane at the position `position`.
  long plane(long position) const { return periodic_z ? unfold(position, nz) : position; }

  /// Returns the position of plane z. If plane z lies beyond a periodic or mirror boundary, returns the position of the
  /// plane inside the grid that has the same values.
  long position(long z) const {
    if (periodic_z) return fold(((z % nz) + nz) % nz, nz);
    while ((z < 0 && !has_below()) || (z >= nz && !has_above())) z = z < 0 ? -1 - z : 2 * nz - 1 - z;
    return z;
  }
};

/// A rectangle of a plane. It has the rows y0 <= y < y1, and in each row the cells x0 <= x < x1. A rectangle can
/// include padding cells. Then x0 and x1 are multiples of 64 bytes.
struct Rectangle {
  long y0 = 0, y1 = 0, x0 = 0, x1 = 0;

  long rows() const { return y1 - y0; }
  long columns() const { return x1 - x0; }
  bool empty() const { return y0 >= y1 || x0 >= x1; }
  bool operator==(const Rectangle &) const = default;
};

inline Rectangle whole_plane(const Grid &grid) { return Rectangle{0, grid.ny, 0, grid.pitch_cells()}; }

inline Rectangle intersection(const Rectangle &a, const Rectangle &b) {
  return Rectangle{std::max(a.y0, b.y0), std::min(a.y1, b.y1), std::max(a.x0, b.x0), std::min(a.x1, b.x1)};
}

/// Converts a rectangle of folded rows to rectangles of the plane's rows. On a periodic y axis, there are two
/// rectangles: rows at the lower end of the plane, and rows at the upper end.
inline std::array<Rectangle, 2> unfolded(const Grid &grid, const Rectangle &folded) {
  if (!grid.periodic_y) return {folded, Rectangle{}};
  Rectangle low = folded, high = folded;
  low.y0 = (folded.y0 + 1) / 2, low.y1 = (folded.y1 + 1) / 2;
  high.y0 = grid.ny - folded.y1 / 2, high.y1 = grid.ny - folded.y0 / 2;
  return {low, high};
}

struct Field {
  bool read_only = false;  ///< true if no stage updates the field
  bool two_copies = false;
  bool has_previous = false;  ///< true if the previous value of the field is also stored on disk
  /// true if the newest value moves to the other copy in each step
  bool flips = false;
  bool is_history = false;  ///< true if a pass reads the values of the field from a state of another run
  /// only for a history: an update of a slab reads this field up to this number of positions beyond the end of the slab
  long ahead = 0;
  /// number of the field from which the rim of this recomputed field is copied; negative for other fields
  long follows = -1;

  bool recomputed() const { return follows >= 0; }
};

/// A value of a field: the newest value or the previous value. Each of the two values has a ring in memory and an array
/// on disk.
struct FieldValue {
  std::size_t field = 0;
  int age = 0;  ///< 0 for the newest value of the field, 1 for the previous value
};

/// The kinds of arrays that actions read or write. Each kind consists of arrays for several fields.
enum class Array : std::uint8_t {
  source,   ///< the arrays of generation g, which a pass reads
  target,   ///< the arrays of generation g + 1, which a pass writes
  statics,  ///< the arrays of fields that no stage updates
  /// An array with the size of the grid. It stores values of levels before the last level. If the last level is even,
  /// the array stores the odd levels. If the last level is odd, it stores the even levels.
  other,
  fringes,     ///< for each plane, the fringe rows of even levels, followed by the fringe rows of odd levels
  recomputed,  ///< for each plane, the fringe rows of the fields that the pass computes again
  history,     ///< states of another run, in files that have rows without padding
  // The kinds below are not arrays on disk. These kinds are rows that neighbouring ranks exchange. A write sends rows
  // to a neighbouring rank, and a read receives rows from a neighbouring rank (faces.hpp).
  faces,         ///< rows of all arrays of the state, before the first step
  static_faces,  ///< rows of all static fields
  /// The rows of the fields that one level updates. For level 0, these are the rows of all arrays of the state before
  /// the first level. A rank sends the rows of `stairs` to the neighbour with lower rows. With the received rows, the
  /// neighbour updates rows of both ranks.
  stairs,
  /// The rows of all arrays of the state after the last step. A rank sends these rows to the neighbour with higher
  /// rows. The neighbour owns them.
  finished
};

constexpr bool is_faces(Array array) {
  return array == Array::faces || array == Array::static_faces || array == Array::stairs || array == Array::finished;
}

class Fields {
 public:
  explicit Fields(std::vector<Field> fields) : fields_(std::move(fields)) {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      second_.push_back(fields_[i].two_copies ? fields_.size() + doubles_.size() : i);
      if (fields_[i].two_copies) doubles_.push_back(i);
      if (fields_[i].is_history) histories_.push_back(i);
      if (fields_[i].read_only && !fields_[i].is_history) statics_.push_back({i, 0});
      if (fields_[i].recomputed()) recomputed_.push_back(i);
      if (is_computed(i)) computed_.push_back(i);
      if (!fields_[i].read_only && !fields_[i].recomputed() && !fields_[i].is_history) state_.push_back({i, 0});
      if (fields_[i].has_previous) state_.push_back({i, 1});
    }
  }

  std::size_t size() const { return fields_.size(); }
  std::size_t rings() const { return fields_.size() + doubles_.size(); }
  const std::vector<FieldValue> &state() const { return state_; }       ///< the arrays that a pass reads and writes
  const std::vector<FieldValue> &statics() const { return statics_; }   ///< the arrays that a pass only reads
  const std::vector<std::size_t> &doubles() const { return doubles_; }  ///< the numbers of the fields with two copies
  /// the numbers of the fields whose values are states of another run; a pass uses each of these fields only at certain
  /// levels
  const std::vector<std::size_t> &histories() const { return histories_; }
  /// the numbers of the fields that a pass computes again; these fields have no arrays on disk
  const std::vector<std::size_t> &recomputed() const { return recomputed_; }
  /// the numbers of the fields that stages update to compute states of another run; these are recomputed fields, and
  /// fields whose first values are read from the history
  const std::vector<std::size_t> &computed() const { return computed_; }
  /// Returns how many fields of the state the stages update.
  std::size_t updated() const { return size() - statics_.size() - histories_.size() - recomputed_.size(); }
  bool read_only(std::size_t field) const { return fields_[field].read_only; }
  bool is_recomputed(std::size_t ring) const { return ring < size() && fields_[ring].recomputed(); }
  bool is_computed(std::size_t field) const {
    return !fields_[field].read_only && (fields_[field].recomputed() || fields_[field].is_history);
  }
  bool is_history(std::size_t ring) const { return ring < size() && fields_[ring].is_history; }
  long ahead(std::size_t field) const { return fields_[field].ahead; }
  std::size_t follows(std::size_t field) const { return static_cast<std::size_t>(fields_[field].follows); }

  /// Returns the ring that holds copy 0 or copy 1 of a field.
  std::size_t ring(std::size_t field, std::size_t copy) const { return copy == 0 ? field : second_[field]; }

  /// Returns the ring that holds the given value of a field after `steps` steps of a pass.
  std::size_t ring(const FieldValue &value, long steps) const {
    const bool second = (fields_[value.field].flips && steps % 2 != 0) != (value.age == 1);
    return ring(value.field, second ? 1 : 0);
  }

 private:
  std::vector<Field> fields_;
  std::vector<std::size_t> second_, doubles_, histories_, recomputed_, computed_;
  std::vector<FieldValue> state_, statics_;
};

/// The kernel that updates one level, with the rings of the kernel's operands.
struct StageCall {
  outcrop_kernel kernel = nullptr;
  std::vector<std::size_t> sources, targets;
};

/// The scalar arguments of kernels for successive steps.
struct StepScalars {
  std::vector<std::byte> values;  ///< the scalars of all steps in order, or one set for all steps
  /// distance in bytes between the scalars of two steps; 0 if one set serves all steps
  std::size_t bytes = 0;

  const void *of(long step) const { return values.data() + static_cast<std::size_t>(step) * bytes; }
};

/// Describes the lead of a pass. The lead is the first levels of the pass. The levels of the lead repeat steps of
/// another run, to compute states of this run again.
struct Lead {
  long levels = 0;
  long per_step = 1;  ///< number of levels in a step of the other run
  StepScalars scalars{};
};

/// The kernel calls of all levels of a pass. A level is one stage of a step. Usually `calls` contains the calls of two
/// steps, and a pass repeats these calls. Two steps are enough, because the two copies of a field alternate from step
/// to step. However, if steps read a history, each step reads other rings. With a history, `calls` contains the calls
/// of all steps of a pass.
struct Stages {
  /// the calls of the lead, if there is a lead, followed by the calls of step 0, step 1, ...
  std::vector<StageCall> calls;
  StepScalars scalars{};
  std::size_t steps = 2;  ///< number of steps in `calls`
  Lead lead{};

  long per_step() const { return (static_cast<long>(calls.size()) - lead.levels) / static_cast<long>(steps); }
  const StageCall &at(long level) const { return calls[static_cast<std::size_t>(level - 1) % calls.size()]; }
  const void *scalars_of(long level) const {
    if (lead.levels == 0) return scalars.of((level - 1) / per_step());
    // a measurement may have more levels than a pass, so the scalars of the pass are used again
    const long place = (level - 1) % static_cast<long>(calls.size());
    if (place < lead.levels) return lead.scalars.of(place / lead.per_step);
    return scalars.of((place - lead.levels) / per_step());
  }
};

}  // namespace outcrop
