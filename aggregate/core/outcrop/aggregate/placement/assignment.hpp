// Which row gets which column, so that the sum of costs is least.
//
//     row ──cost──► column (room) ──► group (room)          row: a domain; column: a tier of a node; group: a node
//
// Each row gets one column. A column takes as many rows as it has room, and so does a group, whose columns share it.
// Shortest augmenting paths with potentials (as Jonker and Volgenant have it for columns of one row): rows come one by
// one; each takes the cheapest path to a column that is free, on which rows that came before move on to their next
// best.
// Exact, and a function of its arguments alone: equal costs go to the lowest column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace outcrop::aggregate {

struct Columns {
  std::vector<std::uint32_t> group;       ///< of each column, ascending
  std::vector<std::uint32_t> room;        ///< of each column
  std::vector<std::uint32_t> group_room;  ///< of each group
};

/// How many rows can get a column at all.
std::uint64_t places(const Columns &columns);

/// The column of each row. `costs` holds a row after the other, finite and at least 0; there must be places for all.
std::vector<std::uint32_t> assign(std::size_t rows, const Columns &columns, std::span<const double> costs);

/// The same in one go through the rows, each taking the cheapest column that is left: for more rows than `assign` can
/// do in seconds. Not the least sum as a rule.
std::vector<std::uint32_t> assign_in_turn(std::size_t rows, const Columns &columns, std::span<const double> costs);

}  // namespace outcrop::aggregate
