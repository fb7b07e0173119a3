// The decisions that a plan makes once, before the first step: domains, their aggregators, and buffers. The ranks exchange
// descriptions of their patterns first, so that all of them compute the same decisions.
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
#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {

// --- which rank aggregates which domain ----------------------------------------------------------------------------

/// The data from which aggregators are elected. They are the same on all ranks.
struct ElectionInputs {
  std::size_t domains = 0;
  std::span<const Tally> tallies;  ///< sorted by domain, then by rank, without zeros
  std::span<const int> nodes;      ///< of each rank: the lowest rank of its node
  std::uint64_t buffer_bytes = 0;  ///< of one buffer
  std::uint32_t buffers = 0;       ///< of each aggregator
  bool can_merge = false;          ///< ranks of a node may use relays
  std::span<const int> owners;     ///< the aggregator of each domain if each rank performs its own I/O; else empty
};

struct Election {
  std::vector<int> aggregators;  ///< of each domain, after merging
  std::uint32_t together = 1;    ///< number of neighbouring domains of the inputs that are merged into one
  std::vector<std::uint32_t> tiers =
      {};               ///< of each domain's buffers, an index of PlanOptions::media; empty: the first
  bool merged = false;  ///< ranks of a node use relays for aggregators of other nodes (node.hpp)
};

/// A function that elects the aggregators. It must return the same on all ranks, and throw on all ranks if it throws.
using Elect = std::function<Election(const ElectionInputs &)>;

/// Elects the owners if there are any. Otherwise it elects, for each domain, the rank that has the fewest domains so far. If
/// several ranks have equally few, it takes the rank with the most bytes in the domain, and then the lowest rank.
Election elect_by_bytes(const ElectionInputs &inputs);

// --- the plan ------------------------------------------------------------------------------------------------------

/// A value of PlanOptions::own_run_bytes. It means 64 KiB if all ranks are on one node and the number of aggregators is not
/// given, because an aggregator saves only little there. Otherwise it means never, because a file system that several nodes
/// share is faster with few writers.
constexpr std::uint64_t own_run_automatic = ~std::uint64_t{0};

/// The options of a plan. All ranks must give the same options. Only the content of `media` may differ, but not its length.
/// The plan chooses the value of `buffer_bytes`, `buffers` or `aggregators` if it is 0.
struct PlanOptions {
  std::uint64_t buffer_bytes = 0;         ///< of one buffer; a multiple of 4096
  std::uint32_t buffers = 0;              ///< of each aggregator, 2 to 8
  std::uint32_t aggregators = 0;          ///< number of domains, if ranks do not perform their own I/O
  std::uint32_t aggregators_on_node = 1;  ///< the maximum for each node, if the plan chooses the number of aggregators
  /// Each rank performs its own I/O if the mean length of the runs of every rank is at least this. 0: never.
  std::uint64_t own_run_bytes = 0;
  bool reading_only = false;  ///< ranks may declare the same bytes; such a plan refuses to write
  Elect elect = elect_by_bytes;
  std::vector<Medium> media = {};  ///< of the tiers for `elect`, on this rank's node; empty: ordinary memory
};

/// The figures of a plan. They are the same on all ranks, except for `places` and `notes`.
struct PlanSummary {
  std::uint64_t bytes = 0;       ///< of all ranks, in one step
  Range hull;                    ///< of the file, without the base
  std::vector<int> aggregators;  ///< of each domain
  std::vector<std::uint64_t> domain_bytes;
  std::vector<std::uint32_t> tiers;  ///< of each domain's buffers, by PlanOptions::media
  std::vector<Tally> tallies;
  std::vector<int> nodes;  ///< of each rank: the lowest rank of its node
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  bool own = false;                 ///< each rank performs its own I/O
  std::vector<std::string> places;  ///< where the buffers of this rank's node are, a line for each tier
  std::vector<std::string> notes;   ///< preferences that this rank could not follow, with the reasons
};

struct Decision {
  std::vector<std::vector<Range>> domains;
  std::vector<int> owners;  ///< the rank of each domain if each rank performs its own I/O; else empty
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  std::uint64_t bytes = 0;
  Range hull;
  std::optional<Overlap> overlap;  ///< of two ranks; looked for only if each rank performs its own I/O
};

/// Collective. `problem` is the reason why this rank's declaration is invalid, or "". Throws InputError on all ranks for the
/// problem or the invalid options of any rank.
Decision decide(const Link &link, const Pattern &pattern, const PlanOptions &options, const std::string &problem);

}  // namespace outcrop::aggregate
