// Ranks of a node that send as one: what they have of a domain whose aggregator is on another node is put together in
// shared memory, and one of them, the relay, sends it in one message for each round. Reading, it is the other way round.
//
//     rank 4 ─┐  each packs its bytes behind those of the ranks before
//     rank 5 ─┼─► [ 4 4 | 5 5 5 | 7 ]  a slot of the node ── rank 5, one message ──► the aggregator, on another node
//     rank 7 ─┘
//
// Slots are those of a lane (node.hpp), which the relay opens round by round as an aggregator does its buffers. How long each
// rank's part of a round is, all of them know from a table in the same memory, written once when the plan is made.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "outcrop/aggregate/node/tally.hpp"

namespace outcrop::aggregate {

struct Relay {
  std::size_t domain = 0;
  int rank = 0;             ///< that sends and receives: the one with most of the domain; of equal ones the lowest
  std::vector<int> ranks;   ///< of the node with bytes of the domain, ascending
  std::uint64_t bytes = 0;  ///< of all of them
  std::uint32_t rounds = 0;

  std::size_t place_of(int rank_of_node) const;  ///< among the ranks
  std::uint64_t table_words() const { return std::uint64_t{rounds} * ranks.size(); }
};

/// What relays are chosen by; none where ranks send for themselves.
struct RelayWishes {
  std::span<const Tally> tallies;         ///< sorted by domain, then by rank
  std::span<const std::uint32_t> rounds;  ///< of each domain
  bool any() const { return !tallies.empty(); }
};

class Relays {
 public:
  Relays() = default;
  /// The same on all ranks. `nodes`: of each rank; `aggregators`: of each domain.
  Relays(const RelayWishes &wishes, std::span<const int> nodes, std::span<const int> aggregators);

  bool any() const { return !relays_.empty(); }
  /// Of that node's ranks for that domain; null where they send for themselves, or need not.
  const Relay *find(std::size_t domain, int node) const;
  /// Those of a node, by domain.
  std::vector<const Relay *> on_node(int node) const;

 private:
  std::map<std::pair<int, std::size_t>, Relay> relays_;  // by node and domain
};

}  // namespace outcrop::aggregate
