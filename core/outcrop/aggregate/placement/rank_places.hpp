// Where nodes are, by a file of the user's: a line `rank: group switch port` for each rank, blank ones and what follows a #
// aside. Distances are those of a dragonfly, in links: 2 within a switch, 3 within a group, 5 between groups.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "outcrop/aggregate/placement/node_tallies.hpp"

namespace outcrop::aggregate {

/// Between the nodes of `node_of_rank`. Throws InputError, with file and line, for what is no such file, and where ranks of
/// a node are apart or ranks are missing.
Distances distances_by_places(std::string_view text, const std::string &file,
                              std::span<const std::uint32_t> node_of_rank);

/// 0 within a node, 1 between any two.
Distances distances_by_node();

}  // namespace outcrop::aggregate
