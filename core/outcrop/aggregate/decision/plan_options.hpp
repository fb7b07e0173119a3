// What may be chosen about a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "outcrop/aggregate/decision/elect.hpp"
#include "outcrop/aggregate/node/medium.hpp"

namespace outcrop::aggregate {

/// A value of PlanOptions::own_run_bytes: 64 KiB where all ranks are on one node and nobody says how many aggregate, for
/// gathering only costs a copy there; else never, for a file system that several nodes share likes few writers.
constexpr std::uint64_t own_where_it_pays = ~std::uint64_t{0};

/// The same on all ranks but for media, which are alike in number. 0 is chosen for the first three.
struct PlanOptions {
  std::uint64_t buffer_bytes = 0;         ///< of one buffer; a multiple of 4096
  std::uint32_t buffers = 0;              ///< of each aggregator, 2 to 8
  std::uint32_t aggregators = 0;          ///< domains, when ranks do not write their own; chosen: as below
  std::uint32_t aggregators_on_node = 1;  ///< when their number is chosen, at most so many for each node
  std::uint64_t own_run_bytes = 0;        ///< every rank writes its own if all have runs of this mean length; 0: never
  bool reading_only = false;              ///< ranks may declare the same bytes; such a plan refuses to write
  Elect elect = elect_by_bytes;
  std::vector<Medium> media = {};  ///< of the tiers that `elect` may choose, on this rank's node; none: ordinary memory
};

}  // namespace outcrop::aggregate
