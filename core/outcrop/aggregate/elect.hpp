// Who aggregates which domain: the narrow place where a cost model can be put in.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "outcrop/aggregate/tally.hpp"

namespace outcrop::aggregate {

/// The aggregator of each domain, computed alike on all ranks. `tallies` are sorted by domain, then by rank, and leave
/// out zeros; `nodes` has the node of each rank (the lowest rank there).
using Elect =
    std::function<std::vector<int>(std::size_t domains, std::span<const Tally> tallies, std::span<const int> nodes)>;

/// Of the ranks with the fewest domains so far, the one with the most bytes in the domain; of equal ones the lowest.
std::vector<int> elect_by_bytes(std::size_t domains, std::span<const Tally> tallies, std::span<const int> nodes);

}  // namespace outcrop::aggregate
