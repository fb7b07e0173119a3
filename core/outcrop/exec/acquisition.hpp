// The work of a pass besides updating: it adds point sources, samples receivers, takes sums and writes snapshots. All of this
// happens while the rows concerned are in a cache, so that no plane is loaded once more:
//
//     level 1 of the pass     before: receivers that sample ahead of the first step, sums and snapshots of the first values
//     update                  after:  sources of the fields for which this was the last stage of the step,
//                                     then, at the last stage of a step, receivers, sums and snapshots
//     copying of the rim      rim:    receivers, sums and snapshots of all steps, because the rim does not change
//
// Where blocks update cells of their neighbours, too, each block adds sources to all cells it updates, but samples and sums
// only its own cells.
//
// Points are found by the plane they lie in. A level updates some rows of some planes; then the same thread looks up the points
// in these rows:
//
//     position      0   1   2   3   4
//     first         0   0   3   3   5   5        two equal numbers: no point lies in the plane
//     points        y: 2 2 7     1 9             by rows in a plane; points of one cell in the order given
//
// Nothing is locked: one thread updates a row, and other threads wait for its tile before they read the row.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/exec/grid_sums.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/snapshots.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

struct Cell {
  long z, y, x;
};

/// Values that each step adds to cells of a field, right after the last stage that updates the field.
struct PointInjection {
  std::size_t field = 0;
  std::vector<Cell> cells;
  const std::byte *values = nullptr;  ///< [step of the pass][cell], of the grid's type
};

/// Cells of a field to be sampled at the end of each step, or before its first stage.
struct PointSamples {
  std::size_t field = 0;
  std::vector<Cell> cells;
  bool before = false;
  double *values = nullptr;  ///< [step of the pass][cell]
};

/// The requests for one pass; steps count from its first one.
struct AcquisitionRequests {
  std::vector<PointInjection> injections;
  std::vector<PointSamples> samples;
  std::vector<SumRequest> sums;
  std::vector<Snapshot> snapshots;
  std::string backend = "auto";  ///< that writes snapshots
  StagingSizes staging;          ///< memory for snapshots on their way
  bool only_own = false;         ///< blocks update cells that are not their own

  bool empty() const { return injections.empty() && samples.empty() && sums.empty() && snapshots.empty(); }
};

/// The results besides samples, each in the order of the requests.
struct AcquisitionResults {
  std::vector<FieldSum> sums;
  std::vector<std::uint32_t> snapshot_sums;  ///< CRC32C of the bytes of each snapshot's box
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

  /// Calls body(point) for the points in the part `cells` of the plane at a position.
  template <typename Body>
  void for_each(long position, const Rectangle &cells, const Body &body) const {
    if (points_.empty()) return;
    const auto place = static_cast<std::size_t>(position);
    if (first_[place] == first_[place + 1]) return;
    const Point *point = points_.data() + first_[place], *end = points_.data() + first_[place + 1];
    point = std::lower_bound(point, end, cells.y0, [](const Point &one, long y) { return one.y < y; });
    for (; point != end && point->y < cells.y1; ++point)
      if (point->x >= cells.x0 && point->x < cells.x1) body(*point);
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

  /// Adds the values of the points in that part of a plane, which the level has just updated.
  void add(long level, long position, const Rectangle &cells) const;
  bool empty() const { return lists_.empty(); }

 private:
  const Grid &grid_;
  const Window &window_;
  const Stages &stages_;
  std::vector<PointInjection> lists_;
  std::vector<PointTable> tables_;               // by stage
  std::vector<std::vector<std::size_t>> rings_;  // [call of Stages][list]: the ring that the call writes
};

/// The receivers of a pass. All arguments must outlive this.
class Samples {
 public:
  Samples(const Grid &grid, const Window &window, const Fields &fields, std::vector<PointSamples> lists);

  /// Samples that part of a plane after `done` of the `steps` steps of a pass; 0: before the first one.
  void take(long done, long steps, long position, const Rectangle &cells) const;

  /// Samples cells that no step changes, for all steps.
  void take_rim(long steps, long position, const Rectangle &cells) const;
  bool empty() const { return lists_.empty(); }

 private:
  void write(const PointTable &table, long done, long row, long position, const Rectangle &cells) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::vector<PointSamples> lists_;
  PointTable before_, after_;
};

class Acquisition {
 public:
  /// For a pass of `steps` steps; adds the bytes of snapshots to `bytes_snapshots`. All arguments but the requests must outlive
  /// this. Throws StorageError.
  Acquisition(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
              AcquisitionRequests requests, long steps, std::atomic<std::uint64_t> &bytes_snapshots);

  /// The cells of the block that follows.
  void set_own(const OwnedCells &own) { own_ = own; }

  /// Level 1 is about to update that part of planes z0 <= position < z1 (rows folded where y is periodic).
  void before(long z0, long z1, const Rectangle &cells);

  /// The level has just updated it.
  void after(long level, long z0, long z1, const Rectangle &cells);

  /// No step changes that part of a plane (rows not folded).
  void rim(long position, const Rectangle &cells);

  /// To be called after every slab, by one thread. Throws StorageError.
  void end_slab() { snapshots_.write_behind(); }

  /// To be called before the pass is committed. Throws StorageError.
  void flush() { snapshots_.flush(); }

  /// After flush().
  AcquisitionResults results() const { return {sums_.results(), snapshots_.sums()}; }

 private:
  void take(long done, long z0, long z1, const Rectangle &cells);

  const Grid &grid_;
  const long stages_, steps_;
  const bool only_own_;
  OwnedCells own_;
  Injections injections_;
  Samples samples_;
  GridSums sums_;
  Snapshots snapshots_;
};

}  // namespace outcrop
