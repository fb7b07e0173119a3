#include "outcrop/aggregate/decision/domains.hpp"

#include <algorithm>
#include <map>

#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {

// --- domains -------------------------------------------------------------------------------------------------------

namespace {

// Adds a part of an extent to `regions`. The part begins at offset `file` of the file, and consists of all repetitions
// of dim `level`. If the gap between two repetitions has at least `gap_bytes` bytes, adds each repetition separately.
// If the gap is smaller, or if there would be too many regions, adds the whole part as one region.
void split(const Extent &extent, std::size_t level, std::uint64_t file, std::uint64_t gap_bytes,
           std::size_t max_regions, std::vector<Region> &regions) {
  const detail::Walk walk = detail::walk_of(extent, {});
  std::uint64_t bytes = extent.block_bytes;
  for (std::size_t i = level; i < extent.dims.size(); ++i) bytes *= extent.dims[i].count;
  if (level < extent.dims.size()) {
    const Dimension &dim = extent.dims[level];
    // If the gaps of this dim are too small, the gaps of the inner dims need no test, because they are smaller still.
    if (dim.file_stride_bytes - walk.spans[level + 1] >= gap_bytes && regions.size() + dim.count <= 4 * max_regions) {
      for (std::uint64_t i = 0; i < dim.count; ++i)
        split(extent, level + 1, file + i * dim.file_stride_bytes, gap_bytes, max_regions, regions);
      return;
    }
  }
  regions.push_back({{file, file + walk.spans[level]}, bytes});
}

void join(std::vector<Region> &regions, std::uint64_t gap_bytes) {
  std::ranges::sort(regions, {}, [](const Region &region) { return region.range.begin; });
  join_neighbours(regions, 0, [&](Region &before, const Region &next) {
    if (next.range.begin >= before.range.end && next.range.begin - before.range.end >= gap_bytes) return false;
    before.range.end = std::max(before.range.end, next.range.end);
    before.bytes += next.bytes;
    return true;
  });
}

}  // namespace

std::vector<Region> regions_of(const Pattern &pattern, std::uint64_t gap_bytes, std::size_t max_regions) {
  std::vector<Region> regions;
  for (const DeclaredExtent &declared : pattern.extents())
    split(declared.extent, 0, declared.extent.file_offset, gap_bytes, max_regions, regions);
  join(regions, gap_bytes);
  if (regions.size() > max_regions) {
    std::vector<std::uint64_t> gaps;
    for (std::size_t i = 1; i < regions.size(); ++i) gaps.push_back(regions[i].range.begin - regions[i - 1].range.end);
    const auto kept = gaps.begin() + static_cast<std::ptrdiff_t>(max_regions - 1);
    std::ranges::nth_element(gaps, kept, std::ranges::greater{});
    join(regions, *kept + 1);
  }
  return regions;
}

std::vector<std::vector<Range>> cut_domains(std::span<const Region> regions, std::size_t count,
                                            std::uint64_t alignment) {
  // The density of a part of the file is the number of bytes that ranks access there, divided by the length of the
  // part. The depth is the number of regions that contain the part. Both values change only at the start or end of a
  // region.
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
  double density = 0, assigned = 0;
  int depth = 0;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    density += change->second.first;
    depth += change->second.second;
    const auto next = std::next(change);
    if (next == changes.end() || depth == 0) continue;
    std::uint64_t begin = change->first;
    const std::uint64_t end = next->first;
    while (begin < end) {
      // Domain n ends where domains 1 to n together have the fraction n / `count` of all bytes. The last domain takes
      // all remaining bytes.
      const double missing = share * static_cast<double>(domains.size()) - assigned;
      if (domains.size() < count && missing < 1 && !domains.back().empty()) {
        domains.emplace_back();
        continue;
      }
      std::uint64_t cut = end;
      if (domains.size() < count && density > 0) {
        const double wanted = std::min(static_cast<double>(begin) + std::max(missing, 1.0) / density, 0x1p62);
        cut = std::clamp(round_up(static_cast<std::uint64_t>(wanted), alignment), begin + 1, end);
      }
      append(domains.back(), {begin, cut});
      assigned += static_cast<double>(cut - begin) * density;
      begin = cut;
    }
  }
  if (domains.back().empty()) domains.pop_back();
  return domains;
}

// --- rounds --------------------------------------------------------------------------------------------------------

Rounds cut_rounds(std::span<const Range> ranges, std::uint64_t buffer_bytes) {
  constexpr std::uint64_t page = AlignedMemory::page_bytes;
  Rounds rounds;
  std::uint64_t position = 0;
  const auto end_round = [&] {
    if (position > 0) rounds.ends.push_back(static_cast<std::uint32_t>(rounds.ranges.size()));
    position = 0;
  };
  for (Range rest : ranges)
    while (!rest.empty()) {
      position = round_up(position, page) + rest.begin % page;
      if (position >= buffer_bytes) {
        end_round();
        continue;
      }
      // In the buffer, the range has the same offset within a page as in the file. So a full buffer ends at a page
      // boundary of the file.
      const std::uint64_t length = std::min(rest.bytes(), buffer_bytes - position);
      rounds.ranges.push_back({{rest.begin, rest.begin + length}, position});
      position += length;
      rest.begin += length;
      if (position == buffer_bytes) end_round();
    }
  end_round();
  return rounds;
}

// --- the work of an aggregator -------------------------------------------------------------------------------------

std::uint64_t bytes_in(const Pattern &pattern, std::span<const BufferedRange> round) {
  std::uint64_t bytes = 0;
  for (const BufferedRange &range : round) bytes += pattern.bytes_in(range.file);
  return bytes;
}

DomainWork::DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node)
    : domain_(domain), rounds_(std::move(rounds)), senders_(std::move(senders)), local_begins_(1) {
  find_peers(node);
  std::vector<int> local;
  for (const Sender &sender : senders_) local.push_back(node.local_of(sender.rank));
  std::vector<std::uint64_t> each(senders_.size());
  for (std::uint32_t round = 0; round < rounds_.count(); ++round) {
    std::uint64_t present = 0, whole = 0;
    for (const BufferedRange &range : rounds_.of(round)) whole += range.file.bytes();
    const std::size_t remote_before = remote_parts_.size();
    for (std::uint32_t i = 0; i < senders_.size(); ++i) {
      present += each[i] = bytes_in(senders_[i].pattern, rounds_.of(round));
      if (each[i] > 0 && local[i] >= 0) local_parts_.push_back(static_cast<std::uint32_t>(local[i]));
    }
    for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
      std::uint64_t bytes = 0;
      for (const std::uint32_t sender : peers_[peer].senders) bytes += each[sender];
      if (bytes > 0) remote_parts_.push_back({round, peer, bytes});
    }
    parts_.push_back(
        static_cast<std::uint32_t>(local_parts_.size() - local_begins_.back() + remote_parts_.size() - remote_before));
    local_begins_.push_back(local_parts_.size());
    dense_.push_back(present == whole);  // `present` counts no byte twice, because a plan that writes refuses overlaps
  }
}

// Finds the peers on other nodes. The senders are sorted by rank, so the ranks of each peer are sorted, too.
void DomainWork::find_peers(const Node &node) {
  std::map<int, std::uint32_t> of_relay;
  for (std::uint32_t i = 0; i < senders_.size(); ++i) {
    const int rank = senders_[i].rank;
    if (node.local_of(rank) >= 0) continue;
    const Relay *relay = node.relays().find(domain_, node.nodes()[static_cast<std::size_t>(rank)]);
    if (relay == nullptr) {
      peers_.push_back({rank, {i}});
      continue;
    }
    const auto [found, added] = of_relay.try_emplace(relay->rank, static_cast<std::uint32_t>(peers_.size()));
    if (added) peers_.push_back({relay->rank, {}});
    peers_[found->second].senders.push_back(i);
  }
}

std::span<const BufferedRange> DomainWork::runs(std::size_t round) {
  if (dense_[round]) return rounds_.of(round);
  if (runs_round_ != round) find_runs(round);
  return runs_;
}

RunTotals DomainWork::totals() {
  RunTotals totals;
  for (std::size_t round = 0; round < rounds_.count(); ++round)
    for (const BufferedRange &run : runs(round)) {
      totals.bytes += run.file.bytes();
      if (run.file.bytes() >= AlignedMemory::page_bytes) ++totals.long_runs;
    }
  return totals;
}

void DomainWork::find_runs(std::size_t round) {
  runs_.clear();
  for (const BufferedRange &range : rounds_.of(round)) {
    const std::size_t first = runs_.size();
    for (const Sender &sender : senders_)
      sender.pattern.visit_extents(range.file, [&](const DeclaredExtent &declared) {
        visit_batches(declared.extent, range.file, [&](const Batch &batch) {
          for (std::uint64_t i = 0; i < batch.count; ++i) {
            const std::uint64_t begin = batch.file + i * batch.file_stride;
            runs_.push_back({{begin, begin + batch.block}, range.position + (begin - range.file.begin)});
          }
        });
      });
    std::ranges::sort(std::span(runs_).subspan(first), {}, [](const BufferedRange &run) { return run.file.begin; });
    join_neighbours(runs_, first, [](BufferedRange &before, const BufferedRange &next) {
      if (next.file.begin > before.file.end) return false;
      before.file.end = std::max(before.file.end, next.file.end);
      return true;
    });
  }
  runs_round_ = round;
}

}  // namespace outcrop::aggregate
