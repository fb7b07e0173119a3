// What a pass does besides updating: adds point sources, samples receivers, takes sums, writes snapshots. All of it while the rows
// concerned are in a cache, so that no plane is looked at once more:
//
//     level 1 of the pass     before: receivers that look ahead of the first step, sums and snapshots of what the pass finds
//     update                  after:  sources of the fields for which this was the last stage of the step,
//                                     then, at the last stage of a step, receivers, sums and snapshots
//     copying of the rim      rim:    receivers, sums and snapshots of all steps, because the rim does not change
//
// Where blocks update cells of their neighbours, too, all of them add sources, but each takes its own cells only.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/grid_sums.hpp"
#include "outcrop/exec/points.hpp"
#include "outcrop/exec/snapshots.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// What is asked of one pass; steps count from its first one.
struct TapRequests {
  std::vector<PointInjection> injections;
  std::vector<PointSamples> samples;
  std::vector<SumRequest> sums;
  std::vector<Snapshot> snapshots;
  std::string backend = "auto";  ///< that writes snapshots
  StagingSizes staging;          ///< memory for snapshots on their way
  bool only_own = false;         ///< blocks update cells that are not their own

  bool empty() const { return injections.empty() && samples.empty() && sums.empty() && snapshots.empty(); }
};

/// What comes of it besides samples, each in the order of the requests.
struct TapResults {
  std::vector<FieldSum> sums;
  std::vector<std::uint32_t> snapshot_sums;  ///< CRC32C of the bytes of each snapshot's box
};

class Taps {
 public:
  /// For a pass of so many steps; adds what snapshots take to `bytes_snapshots`. All but the requests must outlive this.
  /// Throws StorageError.
  Taps(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages, TapRequests requests,
       long steps, std::atomic<std::uint64_t> &bytes_snapshots);

  /// Cells of the block that follows.
  void set_own(const Own &own) { own_ = own; }

  /// That part of planes z0 <= position < z1 (rows folded where y is periodic) is about to be updated by level 1.
  void before(long z0, long z1, const Cut &cut);

  /// It has just been updated.
  void after(long level, long z0, long z1, const Cut &cut);

  /// No step changes that part of a plane (rows not folded).
  void rim(long position, const Cut &cut);

  /// To be called after every slab, by one thread. Throws StorageError.
  void end_slab() { snapshots_.write_behind(); }

  /// To be called before the pass is committed. Throws StorageError.
  void flush() { snapshots_.flush(); }

  /// After flush().
  TapResults results() const { return {sums_.results(), snapshots_.sums()}; }

 private:
  void take(long done, long z0, long z1, const Cut &cut);

  const Grid &grid_;
  const long stages_, steps_;
  const bool only_own_;
  Own own_;
  Injections injections_;
  Samples samples_;
  GridSums sums_;
  Snapshots snapshots_;
};

}  // namespace outcrop
