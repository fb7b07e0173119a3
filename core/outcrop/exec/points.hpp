// Point sources and receivers of one pass, found by the plane they lie in.
//
// A level updates some rows of some planes; then whoever has updated them looks up the points in there:
//
//     position      0   1   2   3   4
//     first         0   0   3   3   5   5        no point in a plane: two equal numbers, nothing else is looked at
//     points        y: 2 2 7     1 9             by rows in a plane; points of one cell in the order given
//
// Nothing is locked: a row is updated by one thread, and other threads wait for its tile before they read it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/grid.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

struct Cell {
  long z, y, x;
};

/// What is added to cells of a field by each step, right after the last stage that updates the field.
struct PointInjection {
  std::size_t field = 0;
  std::vector<Cell> cells;
  const std::byte *values = nullptr;  ///< [step of the pass][cell], of the grid's type
};

/// Cells of a field to be written down at the end of each step, or before its first stage.
struct PointSamples {
  std::size_t field = 0;
  std::vector<Cell> cells;
  bool before = false;
  double *values = nullptr;  ///< [step of the pass][cell]
};

/// Points of several lists.
class PointTable {
 public:
  struct Point {
    long position, y, x;
    std::size_t list, index;
  };

  void add(const Grid &grid, std::size_t list, const std::vector<Cell> &cells);

  /// To be called once, after the last add().
  void sort(const Grid &grid);

  bool empty() const { return points_.empty(); }

  /// Calls body(point) for the points in the part `cut` of the plane at a position.
  template <typename Body>
  void for_each(long position, const Cut &cut, const Body &body) const {
    if (points_.empty()) return;
    const auto place = static_cast<std::size_t>(position);
    if (first_[place] == first_[place + 1]) return;
    const Point *point = points_.data() + first_[place], *end = points_.data() + first_[place + 1];
    point = std::lower_bound(point, end, cut.y0, [](const Point &one, long y) { return one.y < y; });
    for (; point != end && point->y < cut.y1; ++point)
      if (point->x >= cut.x0 && point->x < cut.x1) body(*point);
  }

 private:
  std::vector<Point> points_;
  std::vector<std::size_t> first_;  // by position
};

/// The sources of a pass. All arguments must outlive this.
class Injections {
 public:
  Injections(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
             std::vector<PointInjection> lists);

  /// Adds what belongs to that part of a plane, which the level has just updated.
  void add(long level, long position, const Cut &cut) const;
  bool empty() const { return lists_.empty(); }

 private:
  const Grid &grid_;
  const Window &window_;
  const Stages &stages_;
  std::vector<PointInjection> lists_;
  std::vector<PointTable> tables_;               // by stage
  std::vector<std::vector<std::size_t>> rings_;  // [call of Stages][list]: what the call writes
};

/// The receivers of a pass. All arguments must outlive this.
class Samples {
 public:
  Samples(const Grid &grid, const Window &window, const Fields &fields, std::vector<PointSamples> lists);

  /// Writes down that part of a plane as it is after so many steps of a pass of `steps`, 0 being before the first one.
  void take(long done, long steps, long position, const Cut &cut) const;

  /// Writes down cells that no step changes, for all steps.
  void take_rim(long steps, long position, const Cut &cut) const;
  bool empty() const { return lists_.empty(); }

 private:
  void write(const PointTable &table, long done, long row, long position, const Cut &cut) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::vector<PointSamples> lists_;
  PointTable before_, after_;
};

}  // namespace outcrop
