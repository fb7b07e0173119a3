// This file predicts the time in which an aggregator A collects the bytes of a domain and moves them to the target T.
// The domain has W bytes, and rank i has w_i of these bytes.
//
//     ranks i ────messages────► buffer on a tier of A's node ────────► target T
//        max(Lnet, Lmem) d(i,A) + w_i / min(Bnet, Bmem)        Lnet d(A,T) + W / Bnet
//     ranks of A's own node ──► copied:  Lmem + w_A / Bmem
//
// The formula is the model of Tessier, Gressier and Vishwanath for MA-TAPIOCA. A cost is a sum of terms. Each term is
// either a latency L times a distance d, or a number of bytes w divided by a bandwidth B. For reads, the formula uses
// the bandwidths of the opposite direction. With one network card, one rank per node, one aggregator and one round, our
// model equals the published model. For other cases, our model has these extensions:
//
//   contention  Aggregators work at the same time. Aggregators on one node share the network cards and tiers of the
//               node, and all aggregators share the target. One aggregator uses at most one card. Therefore the share
//               of a card for one aggregator is min(1, cards / aggregators on the node).
//   node        Ranks of A's node copy their bytes into A's buffer. Each of these ranks adds one latency of the memory.
//               The ranks of another node may first merge their bytes in shared memory. The node then sends one message
//               per round.
//   rounds      A domain passes through buffers in R rounds. With two buffers, one buffer is filled while the other
//               buffer is emptied. Let F be the total time of filling, and E the total time of emptying. The time of
//               the domain is (F + E) / R + max(F, E) (R - 1) / R.
//   target      The target has its own bandwidth. All aggregators together share this bandwidth. If the target is local
//               to a node, only the aggregators of this node share the bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/aggregate/placement/machine.hpp"

namespace outcrop::aggregate {

/// The bytes that an aggregator collects for its domain.
struct Gathering {
  double distance = 0;  ///< the sum of the distances of all messages from other nodes
  std::uint64_t remote_bytes = 0;
  std::uint64_t local_bytes = 0;  ///< the bytes of ranks on the aggregator's node
  std::uint32_t local_ranks = 1;  ///< the number of ranks that copy the local bytes
  double seconds_merge = 0;       ///< the time that the slowest sending node needs to merge its bytes
};

/// The numbers of aggregators that work at the same time.
struct Contention {
  std::uint32_t on_node = 1;  ///< the number of aggregators on each node
  std::uint32_t in_all = 1;   ///< the number of aggregators on all nodes together
};

/// The number of rounds of a domain, and the number of buffers. Successive rounds use successive buffers.
struct Buffering {
  std::uint64_t rounds = 1;
  std::uint32_t buffers = 2;
};

/// The terms of a predicted cost, in seconds.
struct Cost {
  double merge = 0;     ///< time for which nodes merge bytes before they send them
  double messages = 0;  ///< sum of the latencies of all messages
  double transfer = 0;  ///< time in which bytes from other nodes are transferred
  double copy = 0;      ///< time in which the bytes of the aggregator's own node are copied
  double target_latency = 0;
  double target_transfer = 0;
  double hidden = 0;  ///< time that is saved by filling one buffer while another buffer is emptied

  double fill() const { return merge + messages + transfer + copy; }
  double empty() const { return target_latency + target_transfer; }
  double total() const { return fill() + empty() - hidden; }
};

/// The conditions of a node and the machine from which cost() computes a cost.
struct NodeConditions {
  Network network;
  Target target;
  double distance_to_target = 1;
  Contention contention;
};

Cost cost(const Gathering &gathering, const Tier &tier, const NodeConditions &conditions,
          const Buffering &buffering = {});

/// Returns the time, in seconds, in which `ranks` ranks of one node merge `bytes` bytes in shared memory. Returns 0 if
/// `ranks` is 1.
double seconds_merge(const SharedMemory &memory, std::uint32_t ranks, std::uint64_t bytes);

struct NodeTally {
  std::uint32_t node = 0;
  std::uint32_t ranks = 0;  ///< the number of ranks on the node that have bytes of the domain
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;  ///< the number of messages that the node sends to an aggregator on another node
};

/// The tallies of all nodes, sorted by domain and then by node. Domain d has the tallies with the indices first[d] to
/// first[d + 1] - 1.
struct NodeTallies {
  std::vector<std::size_t> first;
  std::vector<NodeTally> tallies;

  std::size_t domains() const { return first.size() - 1; }
  std::span<const NodeTally> of(std::size_t domain) const {
    return std::span(tallies).subspan(first[domain], first[domain + 1] - first[domain]);
  }
};

/// Returns the tallies sorted by domain and rank. Merges the tallies of the same domain and rank, and leaves out
/// tallies of 0 bytes.
std::vector<Tally> sorted_tallies(std::span<const Tally> tallies);

/// Returns the tallies of one domain. `sorted` must be sorted by domain.
std::span<const Tally> tallies_of(std::span<const Tally> sorted, std::size_t domain);

/// Returns one table for each element of `all`. Each table has a row for each domain and a column for each node. A
/// value in the table is the sum of the distances from the senders to the node, over all messages of the domain.
std::vector<std::vector<double>> distances_gathered(std::span<const NodeTallies *const> all, std::size_t nodes,
                                                    const Distances &distances);

/// Returns one value for each domain: the sum of the distances from the senders to the aggregator, over all messages of
/// the domain. The aggregator of domain d is on node `node_of_domain[d]`.
std::vector<double> distances_gathered_at(const NodeTallies &tallies, std::size_t nodes, const Distances &distances,
                                          std::span<const std::uint32_t> node_of_domain);

struct PlacementOptions {
  std::uint64_t buffer_bytes = 16U << 20;
  std::uint32_t buffers = 2;                       ///< the number of buffers of each aggregator
  Persistence persistence = Persistence::process;  ///< the minimum persistence of the buffers' tier
  std::string tier = {};                           ///< the name of the buffers' tier; if empty, any tier
  bool merged = true;                              ///< true if the ranks of a node send their bytes in one message
  /// the maximum number of aggregators on each node; if empty, there is no limit
  std::vector<std::uint32_t> max_on_node = {};
};

/// Computes the costs of domains on the nodes of a machine. `machine` must exist longer than this object.
class DomainCosts {
 public:
  DomainCosts(const Machine &machine, std::span<const Tally> sorted, std::size_t domains, PlacementOptions options);

  std::size_t domains() const { return tallies_.domains(); }
  std::uint64_t bytes(std::size_t domain) const { return bytes_[domain]; }
  const NodeTallies &tallies() const { return tallies_; }
  const PlacementOptions &options() const { return options_; }

  /// Returns the bytes of the domain that an aggregator on `node` would collect. `distance` is the sum, over all
  /// messages of the domain, of the distance from the sender to the node.
  Gathering gathering(std::size_t domain, std::uint32_t node, double distance) const;

  Buffering buffering(std::size_t domain) const;

  Cost cost(std::size_t domain, std::size_t node, const Gathering &gathering, const Tier &tier,
            const Contention &contention) const;

 private:
  /// The merge times of the slowest and the second slowest node for one domain, and the number of the slowest node. All
  /// nodes merge their bytes at the same time, so the slowest node determines the time. The node of the aggregator does
  /// not merge its bytes. If it is the slowest node, the second slowest node determines the time.
  struct Merging {
    double slowest = 0;
    double second = 0;
    std::uint32_t node = 0;
  };
  Merging merging(std::size_t domain) const;

  const Machine &machine_;
  PlacementOptions options_;
  NodeTallies tallies_;
  std::vector<std::uint64_t> bytes_;
  std::vector<Merging> merging_;
};

}  // namespace outcrop::aggregate
