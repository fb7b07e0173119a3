#include "outcrop/aggregate/decision/decision.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

// --- regions and domains -------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t page = AlignedMemory::page_bytes;

// Adds a part of an extent to `regions`. The part begins at offset `file` of the file, and contains all repetitions of
// the dim with the index `level`. The function adds each repetition separately. The whole part becomes one region in
// two cases: if the gaps between repetitions are shorter than `gap_bytes`, or if there would be too many regions.
void split(const Extent &extent, std::size_t level, std::uint64_t file, std::uint64_t gap_bytes,
           std::size_t max_regions, std::vector<Region> &regions) {
  const detail::Walk walk = detail::walk_of(extent, {});
  std::uint64_t bytes = extent.block_bytes;
  for (std::size_t i = level; i < extent.dims.size(); ++i) bytes *= extent.dims[i].count;
  if (level < extent.dims.size()) {
    const Dimension &dim = extent.dims[level];
    // The gaps of inner dims are shorter than the gaps of this dim. If the gaps of this dim are too short, the inner
    // dims need no test.
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
  // The density of a part of the file is the number of bytes that ranks access in the part, divided by the length of
  // the part. The depth is the number of regions that contain the part. The density and the depth change only where a
  // region begins or ends.
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
      // For each n, the first n domains together have about n / `count` of all bytes. The last domain gets the rest of
      // the bytes.
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
      // The start of a range has the same offset from a page boundary in the buffer and in the file. If the buffer is
      // full, the round therefore ends at a page boundary of the file.
      const std::uint64_t length = std::min(rest.bytes(), buffer_bytes - position);
      rounds.ranges.push_back({{rest.begin, rest.begin + length}, position});
      position += length;
      rest.begin += length;
      if (position == buffer_bytes) end_round();
    }
  end_round();
  return rounds;
}

std::uint64_t bytes_in(const Pattern &pattern, std::span<const BufferedRange> round) {
  std::uint64_t bytes = 0;
  for (const BufferedRange &range : round) bytes += pattern.bytes_in(range.file);
  return bytes;
}

// --- which rank aggregates which domain ----------------------------------------------------------------------------

Election elect_by_bytes(const ElectionInputs &inputs) {
  if (!inputs.owners.empty()) return {{inputs.owners.begin(), inputs.owners.end()}};
  std::vector<std::uint32_t> load(inputs.nodes.size());
  std::vector<int> chosen(inputs.domains, 0);
  for (std::uint32_t domain = 0; domain < inputs.domains; ++domain) {
    const auto own = std::ranges::equal_range(inputs.tallies, domain, {}, &Tally::domain);
    if (own.empty()) continue;
    const auto better = [&](const Tally &a, const Tally &b) {
      return std::tuple(load[a.rank], b.bytes, a.rank) < std::tuple(load[b.rank], a.bytes, b.rank);
    };
    const std::uint32_t best = std::ranges::min_element(own, better)->rank;
    chosen[domain] = static_cast<int>(best);
    ++load[best];
  }
  return {std::move(chosen)};
}

// --- the plan ------------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// The maximum number of contiguous runs for a rank that performs its own I/O.
constexpr std::size_t max_own_regions = 1024;
constexpr std::uint64_t usual_own_run_bytes = 64 << 10;
// If the gap between two contiguous runs of a rank is shorter than `gap_bytes`, both runs belong to one region. A rank
// does not write to the gaps in its regions.
constexpr std::uint64_t gap_bytes = 64 << 10;
constexpr std::size_t max_regions = 262144, min_regions_of_rank = 64;
// Transfers of 8 MiB that bypass the page cache reach the full rate of a device. Transfers of 2 MiB reach five sixths
// of this rate. With four buffers for each aggregator, neither the ranks nor the device wait long.
constexpr std::uint64_t max_buffer_bytes = 8 * mib, min_buffer_bytes = mib;
constexpr std::uint32_t usual_buffers = 4;
constexpr std::uint64_t min_domain_bytes = mib;
constexpr std::uint64_t max_rounds = std::uint64_t{1} << 24;
constexpr std::uint32_t max_aggregators = 16384;

// The options of a plan that must have the same values on all ranks.
struct SharedOptions {
  std::uint64_t buffer_bytes = 0, own_run_bytes = 0;
  std::uint32_t buffers = 0, aggregators = 0, aggregators_on_node = 0, reading_only = 0;
  bool operator==(const SharedOptions &) const = default;
};

// The data that each rank sends to all other ranks before decide() makes the decisions.
struct Proposal {
  SharedOptions options;
  std::uint64_t bytes = 0;
  std::int32_t node = 0, can_own = 0;
  char problem[200] = {};
};

std::string wrong_options(const PlanOptions &options) {
  if (options.buffer_bytes % page != 0)
    return "buffers of " + std::to_string(options.buffer_bytes) + " bytes: choose a multiple of 4096";
  if (options.buffers == 1 || options.buffers > max_buffers)
    return std::to_string(options.buffers) + " buffers: choose 2 to " + std::to_string(max_buffers);
  if (options.aggregators_on_node == 0) return "0 aggregators on a node: choose at least 1";
  if (options.aggregators > max_aggregators)
    return std::to_string(options.aggregators) + " aggregators: choose at most " + std::to_string(max_aggregators);
  return "";
}

std::uint64_t total_bytes(std::span<const Region> regions) {
  std::uint64_t bytes = 0;
  for (const Region &region : regions) bytes += region.range.bytes();
  return bytes;
}

void raise_problems(std::span<const Proposal> all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].problem[0] != 0) throw InputError("rank " + std::to_string(rank) + ": " + all[rank].problem);
    if (all[rank].options != all[0].options)
      throw InputError("ranks 0 and " + std::to_string(rank) + " have given different options for the same plan");
  }
}

std::optional<Overlap> overlap_of(std::span<const Region> regions, std::span<const std::size_t> begins) {
  struct Owned {
    Range range;
    int rank;
  };
  std::vector<Owned> all;
  for (std::size_t rank = 0; rank + 1 < begins.size(); ++rank)
    for (std::size_t i = begins[rank]; i < begins[rank + 1]; ++i)
      all.push_back({regions[i].range, static_cast<int>(rank)});
  std::ranges::sort(all, {}, [](const Owned &owned) { return owned.range.begin; });
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].range.begin < all[i - 1].range.end)
      return Overlap{all[i].range.begin, std::min(all[i - 1].rank, all[i].rank),
                     std::max(all[i - 1].rank, all[i].rank)};
  return std::nullopt;
}

// Makes each rank the aggregator of its own bytes.
void follow_data(std::span<const Region> regions, std::span<const std::size_t> begins, Decision &decision) {
  for (std::size_t rank = 0; rank + 1 < begins.size(); ++rank) {
    if (begins[rank] == begins[rank + 1]) continue;
    decision.owners.push_back(static_cast<int>(rank));
    std::vector<Range> &ranges = decision.domains.emplace_back();
    for (std::size_t i = begins[rank]; i < begins[rank + 1]; ++i) ranges.push_back(regions[i].range);
  }
}

void share_out(std::span<const Region> regions, const PlanOptions &options, std::size_t max_count, Decision &decision) {
  std::size_t count = options.aggregators;
  if (count == 0) count = std::clamp<std::size_t>(decision.summary.bytes / min_domain_bytes, 1, max_count);
  const std::uint64_t share = decision.summary.bytes / count / 8;
  const std::uint64_t alignment = std::clamp<std::uint64_t>(std::bit_floor(share), page, max_buffer_bytes);
  decision.domains = cut_domains(regions, count, alignment);
}

void choose_buffers(const PlanOptions &options, Decision &decision) {
  std::uint64_t longest = 0;
  for (const std::vector<Range> &ranges : decision.domains) {
    std::uint64_t bytes = 0;
    for (const Range &range : ranges) bytes += range.bytes();
    longest = std::max(longest, bytes);
  }
  decision.summary.buffers = options.buffers > 0 ? options.buffers : usual_buffers;
  decision.summary.buffer_bytes = options.buffer_bytes;
  if (decision.summary.buffer_bytes == 0)
    decision.summary.buffer_bytes = std::clamp(round_up(longest / 8, mib), min_buffer_bytes, max_buffer_bytes);
  if (longest / decision.summary.buffer_bytes > max_rounds)
    throw InputError("a domain of this plan spans " + std::to_string(longest) + " bytes, which needs more than " +
                     std::to_string(max_rounds) + " rounds; declare fewer or denser extents");
}

}  // namespace

Decision decide(const Link &link, const Pattern &pattern, const PlanOptions &options, const std::string &problem) {
  const std::string wrong = problem.empty() ? wrong_options(options) : problem;
  std::vector<Region> regions = regions_of(pattern, 1, max_own_regions);
  const bool automatic = options.own_run_bytes == own_run_automatic;
  const std::uint64_t run_bytes = automatic ? usual_own_run_bytes : options.own_run_bytes;
  const bool can_own = run_bytes > 0 && !(automatic && options.aggregators > 0) &&
                       total_bytes(regions) == pattern.bytes() && pattern.bytes() >= pattern.blocks() * run_bytes;
  const SharedOptions shared{options.buffer_bytes, options.own_run_bytes,       options.buffers,
                             options.aggregators,  options.aggregators_on_node, options.reading_only};
  Proposal mine{shared, pattern.bytes(), link.node(), can_own, {}};
  wrong.copy(mine.problem, sizeof mine.problem - 1);
  const std::vector<Proposal> all = link.gather(mine);
  raise_problems(all);

  Decision decision;
  std::vector<int> nodes;
  bool own = true;
  for (const Proposal &each : all) {
    decision.summary.bytes += each.bytes;
    own = own && each.can_own != 0;
    nodes.push_back(each.node);
  }
  std::ranges::sort(nodes);
  const auto count_nodes = static_cast<std::size_t>(std::ranges::unique(nodes).begin() - nodes.begin());
  own = own && (!automatic || count_nodes == 1);
  if (!own) regions = regions_of(pattern, gap_bytes, std::max(min_regions_of_rank, max_regions / all.size()));
  std::vector<std::size_t> begins;
  const std::vector<Region> everywhere = link.gather_lists(regions, &begins);
  if (everywhere.empty()) {
    choose_buffers(options, decision);
    return decision;
  }
  decision.summary.hull = everywhere.front().range;
  for (const Region &region : everywhere) {
    decision.summary.hull.begin = std::min(decision.summary.hull.begin, region.range.begin);
    decision.summary.hull.end = std::max(decision.summary.hull.end, region.range.end);
  }
  if (own) {
    decision.summary.own = true;
    follow_data(everywhere, begins, decision);
    if (!options.reading_only) decision.overlap = overlap_of(everywhere, begins);
  } else {
    share_out(everywhere, options, std::min(count_nodes * options.aggregators_on_node, all.size()), decision);
  }
  choose_buffers(options, decision);
  return decision;
}

}  // namespace outcrop::aggregate
