#include "outcrop/aggregate/placement/workload.hpp"

#include <algorithm>

namespace outcrop::aggregate {

Workload::Workload(const Machine &machine, std::span<const Tally> sorted, std::size_t domains, const Wishes &wishes)
    : machine_(machine),
      wishes_(wishes),
      tallies_(node_tallies(sorted, domains, machine.node_of_rank, wishes.buffer_bytes, wishes.merged)),
      bytes_(domains) {
  for (std::size_t domain = 0; domain < domains; ++domain) {
    for (const NodeTally &tally : tallies_.of(domain)) bytes_[domain] += tally.bytes;
    merging_.push_back(wishes.merged ? merging(domain) : Merging{});
  }
}

Workload::Merging Workload::merging(std::size_t domain) const {
  Merging result;
  for (const NodeTally &tally : tallies_.of(domain)) {
    const double seconds = seconds_merge(machine_.shared_memory, tally.ranks, tally.bytes);
    if (seconds > result.slowest)
      result = {seconds, result.slowest, tally.node};
    else
      result.second = std::max(result.second, seconds);
  }
  return result;
}

Gathering Workload::gathering(std::size_t domain, std::uint32_t node, double distance) const {
  const std::span<const NodeTally> all = tallies_.of(domain);
  const auto own = std::lower_bound(all.begin(), all.end(), node,
                                    [](const NodeTally &tally, std::uint32_t number) { return tally.node < number; });
  Gathering result;
  result.distance = distance;
  result.remote_bytes = bytes_[domain];
  result.seconds_merge = merging_[domain].node == node ? merging_[domain].second : merging_[domain].slowest;
  if (own != all.end() && own->node == node) {
    result.remote_bytes -= own->bytes;
    result.local_bytes = own->bytes;
    result.local_ranks = own->ranks;
  }
  return result;
}

Turns Workload::turns(std::size_t domain) const {
  const std::uint64_t count = (bytes_[domain] + wishes_.buffer_bytes - 1) / wishes_.buffer_bytes;
  return {std::max<std::uint64_t>(1, count), wishes_.buffers};
}

Cost Workload::cost(std::size_t domain, std::size_t node, const Gathering &gathering, const Tier &tier,
                    const Crowd &crowd) const {
  const Surroundings around{machine_.network, machine_.target, machine_.distance_to_target[node], crowd};
  return aggregate::cost(gathering, tier, around, turns(domain));
}

std::span<const Tally> tallies_of(std::span<const Tally> sorted, std::size_t domain) {
  const auto begin = std::lower_bound(sorted.begin(), sorted.end(), domain,
                                      [](const Tally &tally, std::size_t d) { return tally.domain < d; });
  const auto end =
      std::upper_bound(begin, sorted.end(), domain, [](std::size_t d, const Tally &tally) { return d < tally.domain; });
  return {begin, end};
}

}  // namespace outcrop::aggregate
