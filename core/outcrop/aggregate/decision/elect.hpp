// Who aggregates which domain: the narrow place where a cost model can be put in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "outcrop/aggregate/node/tally.hpp"

namespace outcrop::aggregate {

/// What is known when aggregators are elected, the same on all ranks.
struct Ballot {
  std::size_t domains = 0;
  std::span<const Tally> tallies;  ///< sorted by domain, then by rank, without zeros
  std::span<const int> nodes;      ///< of each rank: the lowest rank there
  std::uint64_t buffer_bytes = 0;  ///< of one buffer
  std::uint32_t buffers = 0;       ///< of each aggregator
  bool can_merge = false;          ///< ranks of a node may send together
  std::span<const int> owners;     ///< of each domain where ranks have their own: they aggregate; none otherwise
};

/// The aggregator of each domain, after `together` neighbours of those on the ballot have become one domain each.
struct Election {
  std::vector<int> aggregators;
  std::uint32_t together = 1;
  std::vector<std::uint32_t> tiers = {};  ///< of each domain's buffers, by PlanOptions::media; none: the first
  bool merged = false;                    ///< ranks of another node send together (relays.hpp)
};

/// Computed alike on all ranks; what it throws, it throws on all.
using Elect = std::function<Election(const Ballot &)>;

/// The owners; else of the ranks with the fewest domains so far, the one with the most bytes in the domain; of equal ones
/// the lowest.
Election elect_by_bytes(const Ballot &ballot);

}  // namespace outcrop::aggregate
