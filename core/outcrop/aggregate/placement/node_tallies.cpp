#include "outcrop/aggregate/placement/node_tallies.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace outcrop::aggregate {
namespace {

std::uint64_t messages_of(std::uint64_t bytes, std::uint64_t buffer_bytes) {
  return (bytes + buffer_bytes - 1) / buffer_bytes;
}

bool same_place(const Tally &a, const Tally &b) { return a.domain == b.domain && a.rank == b.rank; }

struct Sent {
  std::size_t which;  // of several tallies
  std::size_t domain;
  double messages;
};

// By nodes, so that each row of distances is made once and never are all of them there at once.
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

}  // namespace

std::vector<std::uint32_t> number_nodes(std::span<const int> lowest_rank_on_node) {
  std::vector<std::uint32_t> numbers(lowest_rank_on_node.size());
  std::uint32_t nodes = 0;
  for (std::size_t rank = 0; rank < numbers.size(); ++rank) {
    const auto lowest = static_cast<std::size_t>(lowest_rank_on_node[rank]);
    assert(lowest <= rank);
    numbers[rank] = lowest == rank ? nodes++ : numbers[lowest];
  }
  return numbers;
}

std::vector<Tally> sorted_tallies(std::span<const Tally> tallies) {
  std::vector<Tally> sorted;
  sorted.reserve(tallies.size());
  for (const Tally &tally : tallies)
    if (tally.bytes > 0) sorted.push_back(tally);
  const auto place = [](const Tally &tally) { return std::tie(tally.domain, tally.rank); };
  const auto before = [&](const Tally &a, const Tally &b) { return place(a) < place(b); };
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) std::sort(sorted.begin(), sorted.end(), before);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (kept > 0 && same_place(sorted[kept - 1], sorted[i]))
      sorted[kept - 1].bytes += sorted[i].bytes;
    else
      sorted[kept++] = sorted[i];
  }
  sorted.resize(kept);
  return sorted;
}

std::vector<Tally> merge_domains(std::span<const Tally> tallies, std::uint32_t together) {
  std::vector<Tally> merged(tallies.begin(), tallies.end());
  for (Tally &tally : merged) tally.domain /= together;
  return sorted_tallies(merged);
}

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
    const auto begin = result.tallies.begin() + static_cast<std::ptrdiff_t>(result.first.back());
    std::stable_sort(begin, result.tallies.end(), [](const auto &a, const auto &b) { return a.node < b.node; });
    auto kept = begin;
    for (auto one = begin; one != result.tallies.end(); ++one) {
      if (one != begin && (kept - 1)->node == one->node) {
        NodeTally &into = *(kept - 1);
        into.ranks += one->ranks;
        into.bytes += one->bytes;
        into.messages += one->messages;
      } else {
        *kept++ = *one;
      }
    }
    result.tallies.erase(kept, result.tallies.end());
  }
  assert(i == tallies.size());
  result.first.push_back(result.tallies.size());
  if (merged)
    for (NodeTally &tally : result.tallies) tally.messages = messages_of(tally.bytes, buffer_bytes);
  return result;
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

}  // namespace outcrop::aggregate
