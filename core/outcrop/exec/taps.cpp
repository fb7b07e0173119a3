#include "outcrop/exec/taps.hpp"

#include <algorithm>
#include <utility>

namespace outcrop {

Taps::Taps(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages, TapRequests requests,
           long steps, std::atomic<std::uint64_t> &bytes_snapshots)
    : grid_(grid),
      stages_(stages.per_step()),
      steps_(steps),
      only_own_(requests.only_own),
      injections_(grid, window, fields, stages, std::move(requests.injections)),
      samples_(grid, window, fields, std::move(requests.samples)),
      sums_(grid, window, fields, std::move(requests.sums)),
      snapshots_(grid, window, fields, std::move(requests.snapshots), requests.backend, bytes_snapshots) {}

void Taps::before(long z0, long z1, const Cut &cut) {
  if (samples_.empty()) return;
  for (const Cut &part : unfolded(grid_, cut))
    for (long z = z0; z < z1; ++z) samples_.take(0, steps_, z, part);
}

void Taps::after(long level, long z0, long z1, const Cut &cut) {
  if (!injections_.empty())
    for (const Cut &part : unfolded(grid_, cut))
      for (long z = z0; z < z1; ++z) injections_.add(level, z, part);
  if (level % stages_ != 0) return;
  const Own own = only_own_ ? own_ : Own{};
  for (const Cut &part : unfolded(grid_, intersection(cut, own.cut)))
    take(level / stages_, std::max(z0, own.z0), std::min(z1, own.z1), part);
}

void Taps::take(long done, long z0, long z1, const Cut &part) {
  if (z0 >= z1 || part.empty()) return;
  if (!samples_.empty())
    for (long z = z0; z < z1; ++z) samples_.take(done, steps_, z, part);
  if (!sums_.empty()) sums_.add(done, z0, z1, part);
  if (!snapshots_.empty())
    for (long z = z0; z < z1; ++z) snapshots_.write(done, z, part);
}

void Taps::rim(long position, const Cut &cut) {
  Cut part = cut;
  if (only_own_) {
    if (position < own_.z0 || position >= own_.z1) return;
    part = intersection(cut, own_.cut);
  }
  if (part.empty()) return;
  samples_.take_rim(steps_, position, part);
  sums_.add_rim(position, part);
  snapshots_.write_rim(position, part);
}

}  // namespace outcrop
