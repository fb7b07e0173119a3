// How fast are updates of a given tiling, with nothing else going on?
#pragma once

#include "outcrop/exec/traverse.hpp"

namespace outcrop {

/// Updates one slab of `slab_planes` of an endless grid with the rows of `grid` and returns cell updates per second, the
/// best of `repeats`. Takes a window for `levels` and `slab_planes` and gives it back.
double measure_update_rate(const Grid &grid, outcrop_kernel kernel, const std::vector<std::byte> &scalars,
                           unsigned threads, const Tiling &tiling, long levels, long slab_planes, int repeats);

/// Bytes per second at which all threads together compute checksums of planes that are not in a cache.
double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes);

}  // namespace outcrop
