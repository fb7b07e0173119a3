// Performs all work of a pass except the updates: point sources, receivers, sums and snapshots. This work happens while
// the rows are in a cache, so no plane is loaded a second time.
//
// A block may also update cells that another block owns. Each block adds sources to all cells that it updates. A block
// samples and sums only the cells that it owns.
//
// A rank may also update cells of a neighbouring rank. With deep halos, both ranks update the same cells, and each rank
// samples, sums and writes only its own rows. With split tiling, only one rank updates a cell. This rank samples and
// sums the cell, even if a neighbour owns the cell. The rank that owns the cell receives the finished rows and writes
// the cell to snapshots.
//
// The points are sorted by plane. A thread that has updated some rows also looks up the points in these rows:
//
//     position      0   1   2   3   4
//     first         0   0   3   3   5   5
//     points        y: 2 2 7     1 9
//
// A plane has no points if its number in `first` equals the next number. In each plane, points are sorted by row.
// Points in the same cell keep their order.
//
// No locks are needed. Only one thread updates a row, and other threads wait for the tile of the row before they read
// the row.
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

/// Values that each step adds to cells of a field, directly after the last stage of the step that updates the field.
struct PointInjection {
  std::size_t field = 0;
  std::vector<Cell> cells;
  const std::byte *values = nullptr;  ///< index: [step of the pass][cell]; values have the type of the grid
};

/// Values that the sources of the lead add to cells (problem.hpp explains the lead). Step i of the lead adds the values
/// to cells of the field `fields[i]`, directly after the stage `stage`.
struct LeadInjection {
  long stage = 0;
  std::vector<std::size_t> fields;
  std::vector<Cell> cells;
  const std::byte *values = nullptr;  ///< index: [step of the lead][cell]; values have the type of the grid
};

/// Cells of a field that are sampled at each step: before the first stage if `before` is true, otherwise at the end of
/// the step.
struct PointSamples {
  std::size_t field = 0;
  std::vector<Cell> cells;
  bool before = false;
  double *values = nullptr;  ///< [step of the pass][cell]
};

/// The requests for one pass. Steps are counted from the first step of the pass.
struct AcquisitionRequests {
  std::vector<PointInjection> injections;
  std::vector<LeadInjection> lead_injections;
  std::vector<PointSamples> samples;
  std::vector<SumRequest> sums;
  std::vector<Snapshot> snapshots;
  std::string backend = "auto";  ///< the backend that writes snapshots
  StagingSizes staging;          ///< sizes of the staging buffer for snapshots
  bool only_own = false;         ///< true if blocks may also update cells that they do not own
  bool only_own_rows = false;    ///< true if neighbouring ranks also update their own rows

  bool empty() const {
    return injections.empty() && lead_injections.empty() && samples.empty() && sums.empty() && snapshots.empty();
  }
};

/// The results of the requests, in the order of the requests. Samples are not included.
struct AcquisitionResults {
  std::vector<FieldSum> sums;
  std::vector<std::uint32_t> snapshot_sums;  ///< for each snapshot, the CRC32C of the bytes in its box
};

/// The points of several lists, sorted by plane and row.
class PointTable {
 public:
  struct Point {
    long position, y, x;
    std::size_t list, index;
  };

  void add(const Grid &grid, std::size_t list, const std::vector<Cell> &cells);

  /// Sorts the points. Must be called once, after the last add().
  void sort();

  bool empty() const { return points_.empty(); }

  /// Calls body(point) for each point of the plane at `position` that lies inside `cells`.
  template <typename Body>
  void for_each(long position, const Rectangle &cells, const Body &body) const {
    if (points_.empty() || position < lowest_) return;
    const auto place = static_cast<std::size_t>(position - lowest_);
    if (place + 1 >= first_.size() || first_[place] == first_[place + 1]) return;
    const Point *point = points_.data() + first_[place], *end = points_.data() + first_[place + 1];
    point = std::lower_bound(point, end, cells.y0, [](const Point &one, long y) { return one.y < y; });
    for (; point != end && point->y < cells.y1; ++point)
      if (point->x >= cells.x0 && point->x < cells.x1) body(*point);
  }

 private:
  std::vector<Point> points_;
  long lowest_ = 0;                 // the lowest position of all points; planes of neighbouring ranks are negative
  std::vector<std::size_t> first_;  // the index of the first point of each position, from `lowest_` on
};

/// Adds the sources of the steps of a pass, or of the steps of its lead. All arguments must outlive this object.
class Injections {
 public:
  Injections(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
             const std::vector<PointInjection> &lists);
  Injections(const Grid &grid, const Window &window, const Lead &lead, const std::vector<LeadInjection> &lists);

  /// Adds the values of the sources in a part of a plane. Must be called after the level `level` has updated this part.
  /// Levels are counted from the first level of the pass or of the lead.
  void add(long level, long position, const Rectangle &cells) const;
  bool empty() const { return lists_.empty(); }

 private:
  struct List {
    std::size_t cells;
    const std::byte *values;
    std::vector<std::size_t> rings;  // index: level, modulo the number of rings
  };

  void add_list(std::size_t stage, const std::vector<Cell> &cells, const std::byte *values,
                std::vector<std::size_t> rings);

  const Grid &grid_;
  const Window &window_;
  std::vector<List> lists_;
  std::vector<PointTable> tables_;  // index: stage
};

/// Samples the receivers of a pass. All arguments must outlive this object.
class Samples {
 public:
  Samples(const Grid &grid, const Window &window, const Fields &fields, std::vector<PointSamples> lists);

  /// Samples a part of a plane after `done` of the `steps` steps of a pass.
  void take(long done, long steps, long position, const Rectangle &cells) const;

  /// Records the samples of all steps of the pass in one call. The cells must be cells that no step changes.
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
  /// Prepares a pass of `steps` steps. Increases `bytes_snapshots` by the number of bytes that snapshots write. All
  /// arguments except the requests must outlive this object. Throws StorageError.
  Acquisition(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
              AcquisitionRequests requests, long steps, std::atomic<std::uint64_t> &bytes_snapshots);

  /// Sets the cells that the next block owns.
  void set_own(const OwnedCells &own) { own_ = own; }

  /// Processes receivers, sums and snapshots that use the values before the first step of the pass. Must be called
  /// before level 1 updates the rows `cells` of the planes z0 <= position < z1. If y is periodic, the rows are folded.
  void before(long z0, long z1, const Rectangle &cells) { take(0, z0, z1, cells); }

  /// Adds sources. After the last stage of a step, also processes receivers, sums and snapshots. Must be called after
  /// the level has updated `cells` in these planes.
  void after(long level, long z0, long z1, const Rectangle &cells);

  /// Processes receivers, sums and snapshots for cells of a plane that no step changes. These rows are not folded.
  void rim(long position, const Rectangle &cells);

  /// Writes rows that a neighbouring rank has updated to snapshots. The rows must hold their values after `done` steps.
  void received(long done, long position, const Rectangle &rows) {
    snapshots_.write(done, position, position + 1, rows);
  }

  /// Starts to write the snapshots to the devices. One thread must call this after every slab. Throws StorageError.
  void end_slab() { snapshots_.write_behind(); }

  /// Waits until all snapshots are on the devices. Must be called before the pass is committed. Throws StorageError.
  void flush() { snapshots_.flush(); }

  /// Returns the results. The results are valid after flush().
  AcquisitionResults results() const { return {sums_.results(), snapshots_.sums()}; }

 private:
  void take(long done, long z0, long z1, const Rectangle &cells);

  const Grid &grid_;
  const long lead_, stages_, steps_;  // numbers of levels in the lead, levels in a step, and steps in the pass
  const bool only_own_, only_own_rows_;
  OwnedCells own_;
  Injections injections_, lead_injections_;
  Samples samples_;
  GridSums sums_;
  Snapshots snapshots_;
};

}  // namespace outcrop
