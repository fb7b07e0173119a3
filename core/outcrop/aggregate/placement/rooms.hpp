// How many aggregators find room where: capacity and persistence as filters, and aggregators spread over nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/placement/assignment.hpp"
#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

struct Rooms {
  Columns columns;                   ///< a tier of a node each; nodes are the groups
  std::vector<std::uint32_t> tier;   ///< of each column
  std::vector<std::uint32_t> slots;  ///< aggregators that find room: of each tier of node 0, then of node 1, ...
  std::uint32_t most_on_node = 1;    ///< aggregators
};

/// Throws InputError where `domains` aggregators do not find room.
Rooms find_rooms(const Machine &machine, std::span<const std::uint32_t> ranks_on_node, std::size_t domains,
                 const Wishes &wishes);

}  // namespace outcrop::aggregate
