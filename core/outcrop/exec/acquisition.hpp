// This file handles point sources, receivers, sums and snapshots during a pass. The rows are processed while they are
// still in a cache. Therefore no plane is loaded from memory again.
//
// A block can also update cells that another block owns. A block adds sources to all cells that it updates. It samples
// and sums only the cells that it owns.
//
// A rank can also update cells that a neighbouring rank owns. With deep halos, both ranks update the same cells. Each
// rank samples, sums and writes only its own rows. With split tiling, exactly one rank updates each cell. With split
// tiling, the rank that updates a cell also samples and sums the cell, even if a neighbour owns it. The owner of the
// cell receives the finished rows, and writes the cell to snapshots.
//
// The points of sources and receivers are sorted by plane. A thread that has updated some rows uses this table to find
// the points in these rows:
//
//     position      0   1   2   3   4
//     first         0   0   3   3   5   5
//     points        y: 2 2 7     1 9
//
// Element i of `first` is the index of the first point in the plane at position i. If the next element of `first` is
// the same, the plane has no points. The points of a plane are sorted by row. Several points in the same cell have the
// order of the requests. The reason is that the order of the additions determines the bits.
//
// No locks are needed, because only one thread at a time updates a row. Other threads read the row only after the tile
// of this thread is finished.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/snapshots.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

// --- sums over all cells ---------------------------------------------------------------------------------------------
// Computes sums over all cells of a field after a step, part by part, while rows are in a cache.
//
// The plan and the threads determine the parts and their order. However, the result must not depend on the parts and
// their order. Therefore the cells are divided into groups of 64 bytes. A part always consists of whole groups. The
// cells of a group are added in a fixed order (cells after nx count as 0), and the sums of the groups are then added
// exactly:
//
//     |0 1 2 3 4 5 6 7|8 9 ...
//
// In float64, a group has 8 cells. First, the four sums 0+4, 1+5, 2+6 and 3+7 are computed. Then the first two of the
// four sums are added to the last two. At the end, the two resulting numbers are added.
//
// ExactSum adds doubles without rounding, so the order of the doubles does not matter. The sum is an integer in units
// of the smallest double:
//
//     limb         66 ... 34 33 32 ... 0
//     exponent     large     1.0     tiny
//
// A limb holds 32 bits of the sum and 31 bits for carries. From time to time, the carries of all limbs are added to the
// next limbs. One addition of a number changes three limbs. This representation is Kulisch's long accumulator.
// Infinities and NaNs are added separately.
//
// One call of ExactSum::add() adds up to 1024 numbers. The call splits all numbers at the same bit into a high part and
// a low part. The bit is so high that the sum of the high parts needs no rounding. The low parts are split again at a
// lower bit, until all low parts are zero:
//
//     largest     1.01100|101
//     others      0.00110|011          sum of high parts ──► limbs
//                 0.00000|1101011
//
// A high part has 53 - 10 bits, because the sum of 1024 numbers needs 10 bits for carries. Most fields need two or
// three splits. The method is from Rump, Ogita and Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput. 31
// (2008).

/// An exact sum of doubles.
class ExactSum {
 public:
  static constexpr std::size_t at_once = 1024;

  void add(double value);

  /// Adds `count` numbers, at most `at_once`. Changes the numbers in `values` to zero.
  void add(double *values, std::size_t count);
  void add(const ExactSum &other);

  /// Returns the sum of all finite numbers in units of 2^-1074, as a little-endian integer in two's complement.
  std::vector<std::byte> integer() const;

  /// Returns the sum of the infinities and NaNs that were added. Returns 0 if there were none.
  double special() const { return special_; }

 private:
  static constexpr std::size_t limbs = 68;  // enough limbs for a sum of 2^60 numbers, each below 2^1024
  static constexpr std::uint32_t max_adds = 1u << 29;

  void carry();

  std::array<std::int64_t, limbs> limbs_{};
  std::uint32_t adds_ = 0;  // number of additions since the carries were last moved
  double special_ = 0;
};

/// A request for the sums of a field after `done` steps of the pass. If `done` is 0, the request is for the values
/// before the first step.
struct SumRequest {
  std::size_t field = 0;
  long done = 1;
};

/// The results for a field: the sum of the values, the sum of their squares, the minimum and the maximum. Minimum and
/// maximum ignore NaNs.
struct FieldSum {
  ExactSum sum, squares;
  double minimum = std::numeric_limits<double>::infinity(), maximum = -std::numeric_limits<double>::infinity();

  void add(const FieldSum &other);
};

/// Computes the sums of a pass. All arguments must outlive this object.
class GridSums {
 public:
  GridSums(const Grid &grid, const Window &window, const Fields &fields, std::vector<SumRequest> requests);

  /// Adds the cells of a part of the planes z0 <= position < z1 to the sums. At the call, the cells must hold their
  /// values after `done` steps. The caller must add every cell exactly once.
  void add(long done, long z0, long z1, const Rectangle &cells);

  /// Adds cells of the rim to the sums of all requests. No step may change these cells.
  void add_rim(long position, const Rectangle &cells);

  /// Returns the sums, in the order of the requests. Must be called only between passes.
  const std::vector<FieldSum> &results() const { return results_; }
  bool empty() const { return requests_.empty(); }

 private:
  FieldSum sum(std::size_t ring, long z0, long z1, const Rectangle &cells) const;
  void add(std::size_t request, const FieldSum &part);

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  const std::vector<SumRequest> requests_;
  std::multimap<long, std::size_t> by_step_;
  std::mutex mutex_;
  std::vector<FieldSum> results_;
};

// --- sources, receivers and all requests of a pass -------------------------------------------------------------------

struct Cell {
  long z, y, x;
};

/// The values that a source adds to cells of a field in each step. If several stages of a step update the field, the
/// values are added directly after the last of these stages.
struct PointInjection {
  std::size_t field = 0;
  std::vector<Cell> cells;
  const std::byte *values = nullptr;  ///< index: [step of the pass][cell]; values have the type of the grid
};

/// The values that the sources of the lead add to cells (problem.hpp explains the lead). Step i of the lead adds the
/// values to cells of the field `fields[i]`, directly after the stage `stage`.
struct LeadInjection {
  long stage = 0;
  std::vector<std::size_t> fields;
  std::vector<Cell> cells;
  const std::byte *values = nullptr;  ///< index: [step of the lead][cell]; values have the type of the grid
};

/// A request for samples of cells of a field in each step. If `before` is true, the cells are sampled before the first
/// stage of the step. If `before` is false, the cells are sampled at the end of the step.
struct PointSamples {
  std::size_t field = 0;
  std::vector<Cell> cells;
  bool before = false;
  double *values = nullptr;  ///< [step of the pass][cell]
};

/// The requests for one pass. The requests count steps from the first step of the pass.
struct AcquisitionRequests {
  std::vector<PointInjection> injections;
  std::vector<LeadInjection> lead_injections;
  std::vector<PointSamples> samples;
  std::vector<SumRequest> sums;
  std::vector<Snapshot> snapshots;
  std::string backend = "auto";  ///< the backend that writes snapshots
  StagingSizes staging;          ///< sizes of the staging buffer for snapshots
  bool only_own = false;         ///< true: process only the cells that the current block owns
  bool only_own_rows = false;    ///< true: process only this rank's rows and planes

  bool empty() const {
    return injections.empty() && lead_injections.empty() && samples.empty() && sums.empty() && snapshots.empty();
  }
};

/// The results of a pass, in the order of the requests. The samples of receivers are stored in PointSamples::values.
struct AcquisitionResults {
  std::vector<FieldSum> sums;
  std::vector<std::uint32_t> snapshot_sums;  ///< for each snapshot, the CRC32C of the bytes in its box
};

/// The points of several lists of cells, sorted by plane and row.
class PointTable {
 public:
  struct Point {
    long position, y, x;
    std::size_t list, index;
  };

  void add(const Grid &grid, std::size_t list, const std::vector<Cell> &cells);

  /// Sorts the points. The caller must call sort() once, after the last add().
  void sort();

  bool empty() const { return points_.empty(); }

  /// Calls body(point) for each point that lies inside `cells` in the plane at `position`.
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
  long lowest_ = 0;                 // the lowest position of all points; negative in a plane of a neighbouring rank
  std::vector<std::size_t> first_;  // the index of the first point of each position, from `lowest_` on
};

/// Adds the values of sources to cells. There is one object for the steps of a pass, and another object for the steps
/// of the lead. All arguments must outlive this object.
class Injections {
 public:
  Injections(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
             const std::vector<PointInjection> &lists);
  Injections(const Grid &grid, const Window &window, const Lead &lead, const std::vector<LeadInjection> &lists);

  /// Adds the values of the sources in a part of a plane. The caller must call add() after the level `level` has
  /// updated this part. In the object for the lead, level 1 is the first level of the lead. In the other object, level
  /// 1 is the first level after the lead.
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

  /// Takes the samples in a part of a plane. This part must hold its values after `done` steps of a pass of `steps`
  /// steps.
  void take(long done, long steps, long position, const Rectangle &cells) const;

  /// Takes the samples of all steps of the pass in one call. The values of the cells must not change during the pass.
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
  /// Prepares a pass of `steps` steps. Adds the number of bytes that snapshots write to `bytes_snapshots`. All
  /// arguments except `requests` must exist longer than this object. Throws StorageError.
  Acquisition(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
              AcquisitionRequests requests, long steps, std::atomic<std::uint64_t> &bytes_snapshots);

  /// Sets the cells that the next block of the plan owns.
  void set_own(const OwnedCells &own) { own_ = own; }

  /// Processes those receivers, sums and snapshots that use the values before the first step of the pass. The caller
  /// must call before() before level 1 updates the rows `cells` of the planes z0 <= position < z1. If the y axis is
  /// periodic, the rows of `cells` are folded (problem.hpp).
  void before(long z0, long z1, const Rectangle &cells) { take(0, z0, z1, cells); }

  /// Adds sources. If the level is the last stage of a step, also processes receivers, sums and snapshots. The caller
  /// must call after() when the level has updated `cells` in these planes.
  void after(long level, long z0, long z1, const Rectangle &cells);

  /// Processes receivers, sums and snapshots for cells of the rim, which no step changes. The rows of `cells` are not
  /// folded.
  void rim(long position, const Rectangle &cells);

  /// Writes received rows to the snapshots. A neighbouring rank has updated the rows that this rank has received. The
  /// received rows must hold their values after `done` steps.
  void received(long done, long position, const Rectangle &rows) {
    snapshots_.write(done, position, position + 1, rows);
  }

  /// Starts to write the snapshots to their devices. One thread must call end_slab() after every slab. Throws
  /// StorageError.
  void end_slab() { snapshots_.write_behind(); }

  /// Waits until all snapshots are on their devices. The caller must call flush() before the commit of the pass. Throws
  /// StorageError.
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
