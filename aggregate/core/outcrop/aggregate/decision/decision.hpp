// What a plan decides once, before the first step: domains, their aggregators, and buffers. All ranks compute it alike from
// what they have told each other about their patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/domains.hpp"
#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/aggregate/transport/link.hpp"

namespace outcrop::aggregate {

// --- which rank aggregates which domain ----------------------------------------------------------------------------

/// What is known when aggregators are elected, the same on all ranks.
struct Ballot {
  std::size_t domains = 0;
  std::span<const Tally> tallies;  ///< sorted by domain, then by rank, without zeros
  std::span<const int> nodes;      ///< of each rank: the lowest rank there
  std::uint64_t buffer_bytes = 0;  ///< of one buffer
  std::uint32_t buffers = 0;       ///< of each aggregator
  bool can_merge = false;          ///< ranks of a node may send together
  std::span<const int> owners;     ///< the aggregator of each domain if each rank performs its own I/O; else empty
};

/// The aggregator of each domain, after `together` neighbours of those on the ballot have become one domain each.
struct Election {
  std::vector<int> aggregators;
  std::uint32_t together = 1;
  std::vector<std::uint32_t> tiers = {};  ///< of each domain's buffers, by PlanOptions::media; empty: the first
  bool merged = false;                    ///< ranks of another node send together, by relays (node.hpp)
};

/// Computed alike on all ranks. What it throws, it throws on all.
using Elect = std::function<Election(const Ballot &)>;

/// The owners if there are any. Else, for each domain, the rank with the fewest domains so far; of these the rank with the
/// most bytes in the domain; of these the lowest.
Election elect_by_bytes(const Ballot &ballot);

// --- the plan ------------------------------------------------------------------------------------------------------

/// A value of PlanOptions::own_run_bytes: 64 KiB if all ranks are on one node and the number of aggregators is not given, because
/// gathering only costs a copy there. Else never, because a file system that several nodes share prefers few writers.
constexpr std::uint64_t own_where_it_pays = ~std::uint64_t{0};

/// The options of a plan. All ranks give the same, except for `media`, which only have the same number. A 0 in one of the
/// first three means that the value is chosen.
struct PlanOptions {
  std::uint64_t buffer_bytes = 0;         ///< of one buffer; a multiple of 4096
  std::uint32_t buffers = 0;              ///< of each aggregator, 2 to 8
  std::uint32_t aggregators = 0;          ///< domains, if ranks do not perform their own I/O
  std::uint32_t aggregators_on_node = 1;  ///< the maximum for each node, if the number of aggregators is chosen
  std::uint64_t own_run_bytes = 0;  ///< each rank performs its own I/O if all have runs of this mean length; 0: never
  bool reading_only = false;        ///< ranks may declare the same bytes; such a plan refuses to write
  Elect elect = elect_by_bytes;
  std::vector<Medium> media =
      {};  ///< of the tiers that `elect` may choose, on this rank's node; empty: ordinary memory
};

/// Figures of a plan, the same on all ranks.
struct PlanSummary {
  std::uint64_t bytes = 0;       ///< of all ranks, in one step
  Range hull;                    ///< of the file, without the base
  std::vector<int> aggregators;  ///< of each domain
  std::vector<std::uint64_t> domain_bytes;
  std::vector<std::uint32_t> tiers;  ///< of each domain's buffers, by PlanOptions::media
  std::vector<Tally> tallies;
  std::vector<int> nodes;  ///< of each rank: the lowest rank there
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  bool own = false;                 ///< each rank writes its own bytes
  std::vector<std::string> places;  ///< where buffers of this rank's node lie, a line for each tier
  std::vector<std::string> notes;   ///< what could not be done as preferred, and why (of this rank)
};

struct Decision {
  std::vector<std::vector<Range>> domains;
  std::vector<int> owners;  ///< of each domain if each rank performs its own I/O; else empty
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  std::uint64_t bytes = 0;
  Range hull;
  std::optional<Overlap> overlap;  ///< found already; only if each rank performs its own I/O
};

/// Collective. `problem` says why this rank's declaration is invalid. It is thrown on all ranks, as are invalid options.
Decision decide(const Link &link, const Pattern &pattern, const PlanOptions &options, const std::string &problem);

}  // namespace outcrop::aggregate
