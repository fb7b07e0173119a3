// A plan makes its decisions once, before the first step. The decisions are the domains, their aggregators and their
// buffers. All ranks first exchange descriptions of their patterns. So all ranks compute the same decisions.
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

/// The data from which aggregators are elected. All ranks have the same data.
struct ElectionInputs {
  std::size_t domains = 0;
  std::span<const Tally> tallies;  ///< sorted by domain, then by rank; no element has 0 bytes
  std::span<const int> nodes;      ///< for each rank, the lowest rank on its node
  std::uint64_t buffer_bytes = 0;  ///< of one buffer
  std::uint32_t buffers = 0;       ///< of each aggregator
  bool can_merge = false;          ///< the ranks of a node may send one message together (relays, node.hpp)
  /// for each domain, its aggregator, if each rank performs its own I/O; otherwise empty
  std::span<const int> owners;
};

struct Election {
  std::vector<int> aggregators;  ///< one for each domain, after domains are merged
  std::uint32_t together = 1;    ///< the number of neighbouring domains that are merged into one domain
  std::vector<std::uint32_t> tiers =
      {};  ///< each domain's tier of buffers, as an index of PlanOptions::media; empty: the first
  /// the ranks of a node send one message together to aggregators of other nodes (relays, node.hpp)
  bool merged = false;
};

/// A function that elects the aggregators. The function must return the same result on all ranks. If the function
/// throws an exception, it must throw on all ranks.
using Elect = std::function<Election(const ElectionInputs &)>;

/// If `owners` of the inputs is not empty, returns these ranks as aggregators. Otherwise, elects for each domain the
/// rank that has the fewest domains so far. If several ranks have equally few, elects the rank with the most bytes in
/// the domain, and then the lowest rank.
Election elect_by_bytes(const ElectionInputs &inputs);

// --- the plan ------------------------------------------------------------------------------------------------------

/// A special value of PlanOptions::own_run_bytes. If all ranks are on one node and the number of aggregators is not
/// given, the value means 64 KiB, because an aggregator saves little time on one node. Otherwise the value means that
/// ranks never perform their own I/O, because a file system that several nodes share is faster with few writers.
constexpr std::uint64_t own_run_automatic = ~std::uint64_t{0};

/// The options of a plan. All ranks must give the same options. Only `media` may differ between ranks, but its length
/// must be the same. If `buffer_bytes`, `buffers` or `aggregators` is 0, the plan chooses the value.
struct PlanOptions {
  std::uint64_t buffer_bytes = 0;         ///< the size of one buffer; a multiple of 4096
  std::uint32_t buffers = 0;              ///< the number of buffers of each aggregator, 2 to 8
  std::uint32_t aggregators = 0;          ///< the number of domains, if ranks do not perform their own I/O
  std::uint32_t aggregators_on_node = 1;  ///< the maximum number on each node, if the plan chooses `aggregators`
  /// Each rank performs its own I/O if the contiguous runs of every rank have at least this mean length. The value 0
  /// means never.
  std::uint64_t own_run_bytes = 0;
  bool reading_only = false;  ///< several ranks may declare the same bytes; then the plan cannot write
  Elect elect = elect_by_bytes;
  /// the media of the tiers that `elect` chooses, on this rank's node; empty: ordinary memory
  std::vector<Medium> media = {};
};

/// The figures of a plan. All figures except for `places` and `notes` are the same on all ranks.
struct PlanSummary {
  std::uint64_t bytes = 0;       ///< the bytes of all ranks in one step
  Range hull;                    ///< the part of the file that one step uses, without the base
  std::vector<int> aggregators;  ///< of each domain
  std::vector<std::uint64_t> domain_bytes;
  std::vector<std::uint32_t> tiers;  ///< for each domain, the tier of its buffers, as an index of PlanOptions::media
  std::vector<Tally> tallies;
  std::vector<int> nodes;  ///< for each rank, the lowest rank on its node
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  bool own = false;                 ///< each rank performs its own I/O
  std::vector<std::string> places;  ///< the places of the buffers on this rank's node, one line for each tier
  std::vector<std::string> notes;   ///< preferences that this rank could not follow, with the reasons
};

struct Decision {
  std::vector<std::vector<Range>> domains;
  std::vector<int> owners;  ///< for each domain, its rank, if each rank performs its own I/O; otherwise empty
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  std::uint64_t bytes = 0;
  Range hull;
  /// a byte that two ranks declare; this is searched only if each rank performs its own I/O
  std::optional<Overlap> overlap;
};

/// Collective. `problem` says why this rank's declaration is invalid, or is "". Throws InputError on all ranks if any
/// rank has a problem or invalid options.
Decision decide(const Link &link, const Pattern &pattern, const PlanOptions &options, const std::string &problem);

}  // namespace outcrop::aggregate
