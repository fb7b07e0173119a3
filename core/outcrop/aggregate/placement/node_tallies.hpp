// Who has how many bytes of which domain: of ranks, as they declare it, then of nodes, as placement needs it.
//
//     domain 0   (rank 0, 8 MiB) (rank 1, 8 MiB) (rank 7, 1 MiB)        Tally, of ranks
//                (node 0, 16 MiB, 2 ranks, messages) (node 3, ...)      NodeTally
//
// Domains are ranges of the file one after another, so two of them together are a domain, too: one exchange of tallies
// of the most domains serves to compare all smaller numbers of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "outcrop/aggregate/node/tally.hpp"

namespace outcrop::aggregate {

struct NodeTally {
  std::uint32_t node = 0;
  std::uint32_t ranks = 0;  ///< of it that have bytes
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;  ///< that it sends to an aggregator on another node
};

/// Those of one node after another, by domain: domain d has [first[d], first[d + 1]).
struct NodeTallies {
  std::vector<std::size_t> first;
  std::vector<NodeTally> tallies;

  std::size_t domains() const { return first.size() - 1; }
  std::span<const NodeTally> of(std::size_t domain) const {
    return std::span(tallies).subspan(first[domain], first[domain + 1] - first[domain]);
  }
};

/// Fills the distances from a node to every node. Of a node to itself it is 0.
using Distances = std::function<void(std::size_t node, std::span<double> row)>;

/// Nodes numbered from 0, of each rank: from what names a node by the lowest rank there is on it.
std::vector<std::uint32_t> number_nodes(std::span<const int> lowest_rank_on_node);

/// Sorted by domain and rank, one for each pair, none of 0 bytes.
std::vector<Tally> sorted_tallies(std::span<const Tally> tallies);

/// Of sorted tallies, `together` domains each made one.
std::vector<Tally> merge_domains(std::span<const Tally> tallies, std::uint32_t together);

/// Of sorted tallies. Messages hold a buffer at most; with `merged` they are of a node, otherwise of a rank.
NodeTallies node_tallies(std::span<const Tally> tallies, std::size_t domains,
                         std::span<const std::uint32_t> node_of_rank, std::uint64_t buffer_bytes, bool merged);

/// For each of `all`, the distance that all messages of a domain go, to each node: a row of all nodes for each domain.
std::vector<std::vector<double>> distances_gathered(std::span<const NodeTallies *const> all, std::size_t nodes,
                                                    const Distances &distances);

/// The same to one node for each domain.
std::vector<double> distances_gathered_at(const NodeTallies &tallies, std::size_t nodes, const Distances &distances,
                                          std::span<const std::uint32_t> node_of_domain);

}  // namespace outcrop::aggregate
