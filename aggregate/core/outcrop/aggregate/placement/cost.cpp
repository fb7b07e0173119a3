#include "outcrop/aggregate/placement/cost.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

#include "outcrop/aggregate/decision/extent.hpp"

namespace outcrop::aggregate {
namespace {

std::uint64_t messages_of(std::uint64_t bytes, std::uint64_t buffer_bytes) {
  return (bytes + buffer_bytes - 1) / buffer_bytes;
}

struct Sent {
  std::size_t which;  // the index, in `all`, of the NodeTallies that contain the sender
  std::size_t domain;
  double messages;
};

// Visits all senders, sorted by node. With this order, each row of distances is computed only once, and only one row is
// in memory.
template <typename Visit>
void for_each_sender(std::span<const NodeTallies *const> all, std::size_t nodes, const Distances &distances,
                     const Visit &visit) {
  std::vector<std::vector<Sent>> sent(nodes);
  for (std::size_t which = 0; which < all.size(); ++which)
    for (std::size_t domain = 0; domain < all[which]->domains(); ++domain)
      for (const NodeTally &tally : all[which]->of(domain))
        sent[tally.node].push_back({which, domain, static_cast<double>(tally.messages)});
  std::vector<double> row(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    if (sent[node].empty()) continue;
    distances(node, row);
    for (const Sent &one : sent[node]) visit(one, std::span<const double>(row));
  }
}

// Returns the tallies of nodes. No message is larger than a buffer. If `merged` is true, the ranks of a node send
// common messages. Otherwise each rank sends its own messages.
NodeTallies node_tallies(std::span<const Tally> tallies, std::size_t domains,
                         std::span<const std::uint32_t> node_of_rank, std::uint64_t buffer_bytes, bool merged) {
  NodeTallies result;
  result.first.reserve(domains + 1);
  std::size_t i = 0;
  for (std::size_t domain = 0; domain < domains; ++domain) {
    result.first.push_back(result.tallies.size());
    for (; i < tallies.size() && tallies[i].domain == domain; ++i) {
      const std::uint64_t messages = messages_of(tallies[i].bytes, buffer_bytes);
      result.tallies.push_back({node_of_rank[tallies[i].rank], 1, tallies[i].bytes, messages});
    }
    std::ranges::stable_sort(std::span(result.tallies).subspan(result.first.back()), {}, &NodeTally::node);
    join_neighbours(result.tallies, result.first.back(), [](NodeTally &before, const NodeTally &next) {
      if (before.node != next.node) return false;
      before.ranks += next.ranks;
      before.bytes += next.bytes;
      before.messages += next.messages;
      return true;
    });
  }
  assert(i == tallies.size());
  result.first.push_back(result.tallies.size());
  if (merged)
    for (NodeTally &tally : result.tallies) tally.messages = messages_of(tally.bytes, buffer_bytes);
  return result;
}

}  // namespace

Cost cost(const Gathering &gathering, const Tier &tier, const NodeConditions &conditions, const Buffering &buffering) {
  const Network &network = conditions.network;
  const Target &target = conditions.target;
  assert(conditions.contention.on_node > 0 && conditions.contention.in_all > 0 && buffering.rounds > 0);
  const double on_node = conditions.contention.on_node;
  const double card = network.card_bytes_per_second * std::min(1.0, network.cards_on_node / on_node);
  const double fill = tier.fill_bytes_per_second / on_node;
  const double empty = tier.empty_bytes_per_second / on_node;
  const auto remote_bytes = static_cast<double>(gathering.remote_bytes);
  const auto local_bytes = static_cast<double>(gathering.local_bytes);
  const auto rounds = static_cast<double>(buffering.rounds);

  Cost cost;
  cost.merge = gathering.seconds_merge;
  cost.messages = std::max(network.latency_seconds, tier.latency_seconds) * gathering.distance;
  cost.transfer = remote_bytes / std::min(card, fill);
  cost.copy = tier.latency_seconds * std::max(1U, gathering.local_ranks) + local_bytes / fill;
  cost.target_latency = target.latency_seconds * rounds;
  if (target.is_shared) cost.target_latency += network.latency_seconds * conditions.distance_to_target * rounds;
  const double path = target.is_shared ? std::min(card, target.bytes_per_second / conditions.contention.in_all)
                                       : target.bytes_per_second / on_node;
  cost.target_transfer = (remote_bytes + local_bytes) / std::min(path, empty);
  if (buffering.buffers > 1 && buffering.rounds > 1)
    cost.hidden = std::min(cost.fill(), cost.empty()) * ((rounds - 1) / rounds);
  return cost;
}

double seconds_merge(const SharedMemory &memory, std::uint32_t ranks, std::uint64_t bytes) {
  if (ranks < 2) return 0;
  return memory.latency_seconds * ranks + static_cast<double>(bytes) / memory.bytes_per_second;
}

std::vector<Tally> sorted_tallies(std::span<const Tally> tallies) {
  std::vector<Tally> sorted;
  sorted.reserve(tallies.size());
  for (const Tally &tally : tallies)
    if (tally.bytes > 0) sorted.push_back(tally);
  const auto place = [](const Tally &tally) { return std::tie(tally.domain, tally.rank); };
  if (!std::ranges::is_sorted(sorted, {}, place)) std::ranges::sort(sorted, {}, place);
  join_neighbours(sorted, 0, [&](Tally &before, const Tally &next) {
    if (place(before) != place(next)) return false;
    before.bytes += next.bytes;
    return true;
  });
  return sorted;
}

std::vector<std::vector<double>> distances_gathered(std::span<const NodeTallies *const> all, std::size_t nodes,
                                                    const Distances &distances) {
  std::vector<std::vector<double>> gathered;
  for (const NodeTallies *tallies : all) gathered.emplace_back(tallies->domains() * nodes);
  for_each_sender(all, nodes, distances, [&](const Sent &sent, std::span<const double> row) {
    double *sum = &gathered[sent.which][sent.domain * nodes];
    for (std::size_t node = 0; node < nodes; ++node) sum[node] += sent.messages * row[node];
  });
  return gathered;
}

std::vector<double> distances_gathered_at(const NodeTallies &tallies, std::size_t nodes, const Distances &distances,
                                          std::span<const std::uint32_t> node_of_domain) {
  std::vector<double> gathered(tallies.domains());
  const NodeTallies *const all[] = {&tallies};
  for_each_sender(all, nodes, distances, [&](const Sent &sent, std::span<const double> row) {
    gathered[sent.domain] += sent.messages * row[node_of_domain[sent.domain]];
  });
  return gathered;
}

DomainCosts::DomainCosts(const Machine &machine, std::span<const Tally> sorted, std::size_t domains,
                         PlacementOptions options)
    : machine_(machine),
      options_(std::move(options)),
      tallies_(node_tallies(sorted, domains, machine.node_of_rank, options_.buffer_bytes, options_.merged)),
      bytes_(domains) {
  for (std::size_t domain = 0; domain < domains; ++domain) {
    for (const NodeTally &tally : tallies_.of(domain)) bytes_[domain] += tally.bytes;
    merging_.push_back(options_.merged ? merging(domain) : Merging{});
  }
}

DomainCosts::Merging DomainCosts::merging(std::size_t domain) const {
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

Gathering DomainCosts::gathering(std::size_t domain, std::uint32_t node, double distance) const {
  const std::span<const NodeTally> all = tallies_.of(domain);
  const auto own = std::ranges::lower_bound(all, node, {}, &NodeTally::node);
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

Buffering DomainCosts::buffering(std::size_t domain) const {
  return {std::max<std::uint64_t>(1, messages_of(bytes_[domain], options_.buffer_bytes)), options_.buffers};
}

Cost DomainCosts::cost(std::size_t domain, std::size_t node, const Gathering &gathering, const Tier &tier,
                       const Contention &contention) const {
  const NodeConditions conditions{machine_.network, machine_.target, machine_.distance_to_target[node], contention};
  return aggregate::cost(gathering, tier, conditions, buffering(domain));
}

std::span<const Tally> tallies_of(std::span<const Tally> sorted, std::size_t domain) {
  return std::ranges::equal_range(sorted, domain, {}, &Tally::domain);
}

}  // namespace outcrop::aggregate
