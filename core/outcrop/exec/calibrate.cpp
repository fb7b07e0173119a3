#include "outcrop/exec/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"
#include "outcrop/exec/ownership.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// No slab ever meets the end of this grid.
Grid endless(Grid grid) {
  grid.nz = std::numeric_limits<int>::max();
  grid.periodic_z = false;
  return grid;
}

}  // namespace

UpdateMeter::UpdateMeter(const Grid &grid, Stages stages, Placement placement, std::size_t rings, long ring_planes)
    : grid_(endless(grid)),
      stages_(std::move(stages)),
      window_(grid_, std::vector<RingSpec>(rings, {ring_planes, grid.record_bytes, false})),
      team_(std::move(placement)) {
  place_memory(window_, team_);
}

long UpdateMeter::planes_needed(const Grid &grid, long levels, long slab_planes) {
  return slab_planes + grid.skew_z * (levels + 1) + 2 * grid.radius_z;
}

std::vector<double> UpdateMeter::measure(const Tiling &tiling, long levels, long slab_planes, const Cut &frame,
                                         const Region &region, int repeats) {
  const long planes = planes_needed(grid_, levels, slab_planes);
  const auto cells = static_cast<std::size_t>(frame.rows() * frame.columns());
  const std::size_t slot_bytes = round_up(cells * grid_.item_bytes + grid_.tail_bytes(), AlignedMemory::page_bytes);
  const std::vector<RingSpec> rings(window_.rings(), {planes, slot_bytes, false});
  if (Window::bytes(rings) > window_.size())
    throw InputError("slabs of " + std::to_string(slab_planes) + " planes and " + std::to_string(levels) +
                     " levels do not fit a window of " + std::to_string(window_.size()) + " bytes");
  const BoundThread bound = team_.bind_caller();
  Window window(grid_, rings, window_.data());
  window.set_frame(frame);
  Traverse traverse(team_, grid_, window, stages_, tiling, levels);
  const std::atomic<bool> cancelled{false};
  std::vector<double> rates;
  long zeta = grid_.first_plane() + grid_.skew_z * levels;
  for (int repeat = 0; repeat < repeats + 1; ++repeat, zeta += slab_planes) {
    const std::uint64_t before = traverse.cells_updated();
    const Clock::time_point start = Clock::now();
    traverse.update(Slab{zeta, zeta + slab_planes, levels, region}, cancelled);
    const double rate = static_cast<double>(traverse.cells_updated() - before) / seconds_since(start);
    if (repeat > 0) rates.push_back(rate);
  }
  return rates;
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
