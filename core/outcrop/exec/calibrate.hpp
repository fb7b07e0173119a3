// How fast are updates of a given tiling, with nothing else going on?
#pragma once

#include <vector>

#include "outcrop/exec/traverse.hpp"

namespace outcrop {

/// Updates slabs of an endless grid with the rows of `grid` in a window that is taken once, because taking memory for the
/// first time costs more than a measurement.
class UpdateMeter {
 public:
  /// Takes and touches `rings` rings of `ring_planes` planes.
  UpdateMeter(const Grid &grid, Stages stages, Placement placement, std::size_t rings, long ring_planes);

  /// Cell updates per second for slabs of `slab_planes` and `levels` in a block whose slots hold `frame` and which updates
  /// `region`: of each of `repeats` slabs, after one that warms up. Throws InputError when they need more memory than
  /// there is.
  std::vector<double> measure(const Tiling &tiling, long levels, long slab_planes, const Cut &frame,
                              const Region &region, int repeats);

  /// Planes each ring must have for that.
  static long planes_needed(const Grid &grid, long levels, long slab_planes);

 private:
  const Grid grid_;
  const Stages stages_;
  const Window window_;
  Team team_;
};

/// Bytes per second at which all threads together compute checksums of planes that are not in a cache.
double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes);

}  // namespace outcrop
