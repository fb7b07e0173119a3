#include "outcrop/exec/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "outcrop/storage/crc32c.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

double measure_update_rate(const Grid &grid, outcrop_kernel kernel, const std::vector<std::byte> &scalars,
                           unsigned threads, const Tiling &tiling, long levels, long slab_planes, int repeats) {
  Grid endless = grid;
  endless.nz = std::numeric_limits<int>::max();
  const long ring = slab_planes + grid.skew * (levels + 1) + 2 * grid.radius_z;
  const Window window(endless, {ring, ring});
  Team team(threads);
  team.touch(window.data(), window.size());
  Traverse traverse(endless, window, kernel, scalars.data(), tiling, levels);
  const std::atomic<bool> cancelled{false};
  double best = 0;
  long zeta = endless.first_plane() + grid.skew * levels;
  for (int repeat = 0; repeat < repeats + 1; ++repeat, zeta += slab_planes) {  // the first warms up
    const std::uint64_t before = traverse.cells_updated();
    const Clock::time_point start = Clock::now();
    traverse.update(team, Slab{zeta, zeta + slab_planes, levels}, cancelled);
    const double rate = static_cast<double>(traverse.cells_updated() - before) / seconds_since(start);
    if (repeat > 0) best = std::max(best, rate);
  }
  return best;
}

double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes) {
  const std::size_t planes = std::max<std::size_t>(threads, total_bytes / plane_bytes);
  const AlignedMemory memory(planes * plane_bytes);
  Team team(threads);
  team.touch(memory.data(), memory.size());
  std::atomic<std::uint32_t> sum{0};
  const Clock::time_point start = Clock::now();
  team.for_each(static_cast<long>(planes), [&](long i) {
    sum += crc32c({memory.data() + static_cast<std::size_t>(i) * plane_bytes, plane_bytes});
  });
  return static_cast<double>(planes * plane_bytes) / seconds_since(start);
}

}  // namespace outcrop
