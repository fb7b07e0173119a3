// Computes a coarser copy of a box of cells while a pass updates these cells. A group is a block of neighbouring cells,
// such as 4 x 4 x 4 cells. The value of a group is the mean of its cells. The last group along an axis has fewer cells
// if the box does not consist of whole groups.
//
// Rows arrive in an order that depends on the plan and on the threads, but the bits of a mean must not depend on this
// order. So the additions have a fixed order, in double precision: first the cells of a row, then the planes, and then
// the rows of the group, always from the lowest to the highest position.
//
//     row of cells      |a b c d|e f g h|i j|         1. add along x: a + b + c + d, ...
//     plane 0, row 5     A       B       C
//     plane 1, row 5    +A      +B      +C            2. add along z: one total for each row of the group
//     ...
//     rows 4, 5, 6, 7   T4 + T5 + T6 + T7             3. add along y, divide, and round to the type of the field
//
// The planes of a row usually arrive in ascending order, so a row of groups needs only one total for each row of cells.
// The sums of a plane that arrives too early wait until the planes below it have arrived. Planes arrive early in three
// cases: the upper rim is read before the planes below it, a periodic axis is read from both ends, and chunks of planes
// are updated in parallel.
//
// The sums are stored in memory that is reserved before the pass. The reserved memory is enough for a total and for
// waiting planes of each row, and for the rows of groups that two tiles share. If a plan with unusually thick slabs
// needs more, more memory is allocated. The budget includes the reserved memory (run/acquisition/pass_acquisition.py).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"

namespace outcrop {

/// The extents of a group, or of a box, in cells along each axis.
struct Extents {
  long z = 1, y = 1, x = 1;

  bool operator==(const Extents &) const = default;
  std::uint64_t cells() const {
    return static_cast<std::uint64_t>(z) * static_cast<std::uint64_t>(y) * static_cast<std::uint64_t>(x);
  }
};

/// Returns the number of groups of a box along each axis.
inline Extents groups_of(const Extents &box, const Extents &group) {
  return {(box.z + group.z - 1) / group.z, (box.y + group.y - 1) / group.y, (box.x + group.x - 1) / group.x};
}

/// Computes the means of all groups of one box. Several threads may call add() at the same time.
class CoarseBox {
 public:
  CoarseBox(const Extents &box, const Extents &group, std::size_t item_bytes);

  /// The numbers of a row of groups, counted in groups, and the means of all groups in this row.
  struct CoarseRow {
    long z = 0, y = 0;
    std::vector<double> means;
  };

  /// Adds the cells x0 <= x < x1 of a row of the box. Each cell must be added once. If all groups of a row of groups are
  /// now complete, sets `row` to their means and returns true.
  bool add(long z, long y, long x0, long x1, const std::byte *cells, CoarseRow &row);

  /// Returns true if each row of groups was either completed or never begun.
  bool has_no_open_rows() const;

 private:
  struct Total {
    double *sums = nullptr;                            // the sums of the planes 0 .. planes - 1 of the group
    long planes = 0;                                   // number of planes in `sums`
    std::vector<std::pair<long, double *>> waiting{};  // planes that arrived early, and their sums
  };
  struct OpenRow {
    std::vector<Total> totals;  // for each row of cells in the row of groups
    long complete = 0;          // number of totals with all planes
    // Cells of rows that arrive in several parts, because a block has only some columns. The key is (z, y). The number
    // counts the columns that have arrived.
    std::map<std::pair<long, long>, std::pair<std::vector<std::byte>, long>> parts{};
  };
  // Rows of groups are divided among several maps, so that threads seldom wait for each other.
  struct OpenRows {
    mutable std::mutex mutex;
    std::unordered_map<std::uint64_t, OpenRow> rows{};
  };

  void sum_row(const std::byte *cells, double *sums) const;
  void add_plane(Total &total, long plane, const double *sums);
  void finish(OpenRow &open, CoarseRow &row);
  double *take();
  void give_back(double *sums);

  const Extents box_, group_, groups_;
  const std::size_t item_bytes_;
  std::array<OpenRows, 64> open_;
  std::mutex mutex_;  // protects the members below
  AlignedMemory memory_;
  std::vector<AlignedMemory> more_memory_;
  std::vector<double *> free_;
  std::size_t unused_;  // number of rows of `memory_` that were never taken
};

}  // namespace outcrop
