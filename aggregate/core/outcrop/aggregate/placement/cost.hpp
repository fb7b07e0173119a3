// What it costs to gather a domain at an aggregator, and to bring it from there to its target.
//
//     ranks i ────messages────► buffer on a tier of A's node ────────► target T
//        max(Lnet, Lmem) d(i,A) + w_i / min(Bnet, Bmem)        Lnet d(A,T) + W / Bnet
//     ranks of A's own node ──► copied:  Lmem + w_A / Bmem
//
// The model of Tessier, Gressier and Vishwanath for MA-TAPIOCA: latency L times distance d, bytes w over bandwidth B,
// all added up. Writing and reading cost the same with the bandwidths of the other direction. Added to it is what their
// machines had not; each addition is nothing where there is one card, one rank a node, one aggregator and one round:
//
//   crowd     aggregators at work at once share what they meet at: the cards and tiers of a node, the target. One
//             drives one card at most, so it has min(1, cards / aggregators on the node) of a card.
//   node      ranks of A's node copy into its buffer, one latency of the memory each. Ranks of another node may put
//             their bytes together first, through shared memory: then one message instead of one for each of them.
//   rounds    a domain is brought through buffers, R of them. With two, filling one overlaps emptying the other:
//             (fill + empty) / R + max(fill, empty) (R - 1) / R.
//   target    has a bandwidth of its own, for all who write to it, or in each node where the target is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/aggregate/placement/machine.hpp"

namespace outcrop::aggregate {

/// What reaches an aggregator for its domain.
struct Gathering {
  double distance = 0;  ///< of all messages from other nodes together
  std::uint64_t remote_bytes = 0;
  std::uint64_t local_bytes = 0;  ///< of the ranks of its node
  std::uint32_t local_ranks = 1;  ///< that copy
  double seconds_merge = 0;       ///< in the slowest of the other nodes, before its message can go
};

/// How many aggregators are at work at the same time.
struct Crowd {
  std::uint32_t on_node = 1;
  std::uint32_t in_all = 1;
};

/// The rounds of a domain, and the buffers they take turns in.
struct Turns {
  std::uint64_t count = 1;
  std::uint32_t buffers = 2;
};

/// A prediction by its terms, in seconds.
struct Cost {
  double merge = 0;     ///< in the nodes that send
  double messages = 0;  ///< latency
  double transfer = 0;  ///< bytes of other nodes
  double copy = 0;      ///< bytes of the own node
  double target_latency = 0;
  double target_transfer = 0;
  double hidden = 0;  ///< what overlap saves of the sum of the others

  double fill() const { return merge + messages + transfer + copy; }
  double empty() const { return target_latency + target_transfer; }
  double total() const { return fill() + empty() - hidden; }
};

/// What is given once for a node: everything a cost depends on but the gathering and the tier.
struct NodeConditions {
  Network network;
  Target target;
  double distance_to_target = 1;
  Crowd crowd;
};

Cost cost(const Gathering &gathering, const Tier &tier, const NodeConditions &around, const Turns &turns = {});

/// Seconds in which `ranks` of one node put `bytes` together; none where one rank has them all.
double seconds_merge(const SharedMemory &memory, std::uint32_t ranks, std::uint64_t bytes);

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

/// How to gather.
struct PlacementOptions {
  std::uint64_t buffer_bytes = 16U << 20;
  std::uint32_t buffers = 2;                       ///< of each aggregator
  Persistence persistence = Persistence::process;  ///< of their tier, at least
  std::string tier = {};                           ///< its name; empty for any
  bool merged = true;                              ///< ranks of a node send one message together
  std::vector<std::uint32_t> max_on_node = {};     ///< aggregators; empty where nothing limits them
};

/// What domains cost on the nodes of a machine. Refers to the machine and the options.
class DomainCosts {
 public:
  DomainCosts(const Machine &machine, std::span<const Tally> sorted, std::size_t domains,
              const PlacementOptions &options);

  std::size_t domains() const { return tallies_.domains(); }
  std::uint64_t bytes(std::size_t domain) const { return bytes_[domain]; }
  const NodeTallies &tallies() const { return tallies_; }

  /// Of a domain on a node that all its messages go `distance` to.
  Gathering gathering(std::size_t domain, std::uint32_t node, double distance) const;

  Turns turns(std::size_t domain) const;

  Cost cost(std::size_t domain, std::size_t node, const Gathering &gathering, const Tier &tier,
            const Crowd &crowd) const;

 private:
  struct Merging {  // nodes put their bytes together at the same time: the slowest counts, or the next if it gathers
    double slowest = 0;
    double second = 0;
    std::uint32_t node = 0;
  };
  Merging merging(std::size_t domain) const;

  const Machine &machine_;
  const PlacementOptions &options_;
  NodeTallies tallies_;
  std::vector<std::uint64_t> bytes_;
  std::vector<Merging> merging_;
};

/// The tallies of one domain among sorted ones.
std::span<const Tally> tallies_of(std::span<const Tally> sorted, std::size_t domain);

}  // namespace outcrop::aggregate
