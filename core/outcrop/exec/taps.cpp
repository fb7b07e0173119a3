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
      snapshots_(grid, window, fields, std::move(requests.snapshots), requests.backend, requests.staging,
                 bytes_snapshots) {}

void Taps::before(long z0, long z1, const Cut &cut) { take(0, z0, z1, cut); }

void Taps::after(long level, long z0, long z1, const Cut &cut) {
  if (!injections_.empty())
    for (const Cut &part : unfolded(grid_, cut))
      for (long z = z0; z < z1; ++z) injections_.add(level, z, part);
  if (level % stages_ == 0) take(level / stages_, z0, z1, cut);
}

void Taps::take(long done, long z0, long z1, const Cut &cut) {
  const Own own = only_own_ ? own_ : Own{};
  const long begin = std::max(z0, own.z0), end = std::min(z1, own.z1);
  for (const Cut &part : unfolded(grid_, intersection(cut, own.cut))) {
    if (begin >= end || part.empty()) continue;
    if (!samples_.empty())
      for (long z = begin; z < end; ++z) samples_.take(done, steps_, z, part);
    if (!sums_.empty()) sums_.add(done, begin, end, part);
    if (!snapshots_.empty())
      for (long z = begin; z < end; ++z) snapshots_.write(done, z, part);
  }
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
