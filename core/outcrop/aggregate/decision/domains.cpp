#include "outcrop/aggregate/decision/domains.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "outcrop/base/round.hpp"

namespace outcrop::aggregate {
namespace {

// Repetitions apart by a gap that counts become regions of their own, as long as there are not too many.
void split(const Extent &extent, std::size_t level, std::uint64_t file, std::uint64_t gap_bytes, std::size_t most,
           std::vector<Region> &regions) {
  const detail::Walk walk = detail::walk_of(extent, {});
  std::uint64_t bytes = extent.block_bytes;
  for (std::size_t i = level; i < extent.dims.size(); ++i) bytes *= extent.dims[i].count;
  if (level < extent.dims.size()) {
    const Dimension &dim = extent.dims[level];
    // Gaps further inside are smaller.
    if (dim.file_stride_bytes - walk.spans[level + 1] >= gap_bytes && regions.size() + dim.count <= 4 * most) {
      for (std::uint64_t i = 0; i < dim.count; ++i)
        split(extent, level + 1, file + i * dim.file_stride_bytes, gap_bytes, most, regions);
      return;
    }
  }
  regions.push_back({{file, file + walk.spans[level]}, bytes});
}

void join(std::vector<Region> &regions, std::uint64_t gap_bytes) {
  std::ranges::sort(regions, {}, [](const Region &region) { return region.range.begin; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < regions.size(); ++i) {
    Region &before = regions[last];
    const Region &next = regions[i];
    if (next.range.begin < before.range.end || next.range.begin - before.range.end < gap_bytes) {
      before.range.end = std::max(before.range.end, next.range.end);
      before.bytes += next.bytes;
    } else {
      regions[++last] = next;
    }
  }
  if (!regions.empty()) regions.resize(last + 1);
}

}  // namespace

std::vector<Region> regions_of(const Pattern &pattern, std::uint64_t gap_bytes, std::size_t most) {
  std::vector<Region> regions;
  for (const Entry &entry : pattern.entries())
    split(entry.extent, 0, entry.extent.file_offset, gap_bytes, most, regions);
  join(regions, gap_bytes);
  if (regions.size() > most) {
    std::vector<std::uint64_t> gaps;
    for (std::size_t i = 1; i < regions.size(); ++i) gaps.push_back(regions[i].range.begin - regions[i - 1].range.end);
    const auto kept = gaps.begin() + static_cast<std::ptrdiff_t>(most - 1);
    std::ranges::nth_element(gaps, kept, std::ranges::greater{});
    join(regions, *kept + 1);
  }
  return regions;
}

std::vector<std::vector<Range>> cut_domains(std::span<const Region> regions, std::size_t count,
                                            std::uint64_t alignment) {
  // How many bytes there are in each byte of the file, on average, changes where regions begin and end.
  std::map<std::uint64_t, std::pair<double, int>> changes;
  double total = 0;
  for (const Region &region : regions) {
    const double density = static_cast<double>(region.bytes) / static_cast<double>(region.range.bytes());
    changes[region.range.begin].first += density;
    changes[region.range.begin].second += 1;
    changes[region.range.end].first -= density;
    changes[region.range.end].second -= 1;
    total += static_cast<double>(region.bytes);
  }
  std::vector<std::vector<Range>> domains(1);
  const double share = total / static_cast<double>(count);
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    if (begin >= end) return;
    std::vector<Range> &ranges = domains.back();
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  };
  double density = 0, held = 0;
  int depth = 0;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    density += change->second.first;
    depth += change->second.second;
    const auto next = std::next(change);
    if (next == changes.end() || depth == 0) continue;
    std::uint64_t begin = change->first;
    const std::uint64_t end = next->first;
    while (begin < end) {
      // A domain takes bytes until all up to it have their share; the last one takes what is left.
      const double missing = share * static_cast<double>(domains.size()) - held;
      if (domains.size() < count && missing < 1 && !domains.back().empty()) {
        domains.emplace_back();
        continue;
      }
      std::uint64_t cut = end;
      if (domains.size() < count && density > 0) {
        const double wanted = std::min(static_cast<double>(begin) + std::max(missing, 1.0) / density, 0x1p62);
        cut = std::clamp(round_up(static_cast<std::uint64_t>(wanted), alignment), begin + 1, end);
      }
      add(begin, cut);
      held += static_cast<double>(cut - begin) * density;
      begin = cut;
    }
  }
  if (domains.back().empty()) domains.pop_back();
  return domains;
}

}  // namespace outcrop::aggregate
