// Before the first step, the ranks choose the domains, the aggregator of each domain, and the buffers. First, each rank
// sends its options and a description of its bytes to all other ranks. Then all ranks compute the same decisions from
// the same data.
//
// The user's file is divided into regions, domains and rounds. Each region belongs to one rank. Each domain belongs to
// one aggregator. Each round belongs to one domain.
//
// A region is a part of the file that a rank accesses. A region may contain small gaps that the rank does not access.
// The regions of all ranks are divided into domains. All domains have about the same number of bytes. Each domain is
// cut into rounds. A round fits into one buffer:
//
//     ranges of the domain   [──────────────]        [────]      [──────────────────────]
//     rounds                 [   0   ][  1  .........  1  ][    2 ....  2  ][     3     ]
//
// The start of a range has the same offset from a page boundary in the buffer and in the file. Whole pages can
// therefore be transferred without the page cache. A round ends at a page boundary of the file, so no page belongs to
// two rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {

// --- regions and domains -------------------------------------------------------------------------------------------

struct Region {
  Range range;
  std::uint64_t bytes = 0;  ///< the number of bytes that the rank accesses in the range
};

/// Returns the regions of a rank's pattern, sorted by their offsets. The gap between two regions has at least
/// `gap_bytes` bytes. If a pattern has more than `max_regions` regions, the function joins regions across the shortest
/// gaps until `max_regions` or fewer regions are left.
std::vector<Region> regions_of(const Pattern &pattern, std::uint64_t gap_bytes, std::size_t max_regions);

/// Divides the regions into domains. Returns at most `count` domains, which together cover all regions. A domain is a
/// list of ranges. Each end of a range is a multiple of `alignment`, or is an end of a region.
std::vector<std::vector<Range>> cut_domains(std::span<const Region> regions, std::size_t count,
                                            std::uint64_t alignment);

// --- rounds --------------------------------------------------------------------------------------------------------

/// A range of the file and its position in the buffer.
struct BufferedRange {
  Range file;
  std::uint64_t position = 0;
};

struct Rounds {
  std::vector<BufferedRange> ranges;
  std::vector<std::uint32_t> ends;  ///< element i is the index in `ranges` of the first range after round i

  std::size_t count() const { return ends.size(); }
  std::span<const BufferedRange> of(std::size_t round) const {
    const std::uint32_t first = round == 0 ? 0 : ends[round - 1];
    return {ranges.data() + first, ends[round] - first};
  }
};

/// Cuts the ranges of a domain into rounds. The ranges must be sorted, and `buffer_bytes` must be a multiple of the
/// page size.
Rounds cut_rounds(std::span<const Range> ranges, std::uint64_t buffer_bytes);

/// Returns the number of bytes of a pattern in a round.
std::uint64_t bytes_in(const Pattern &pattern, std::span<const BufferedRange> round);

/// Totals of the contiguous runs of bytes of a step in one domain.
struct RunTotals {
  std::uint64_t bytes = 0;
  std::size_t runs = 0;
  std::size_t long_runs = 0;  ///< the number of runs that are at least one page long
};

// --- which rank aggregates which domain ----------------------------------------------------------------------------

/// The data that determine the election of aggregators. All ranks have the same data.
struct ElectionInputs {
  std::size_t domains = 0;
  /// one tally for each domain and rank, sorted by domain and then by rank; each tally has at least 1 byte
  std::span<const Tally> tallies;
  std::span<const int> nodes;      ///< element i is the lowest rank on the node of rank i
  std::uint64_t buffer_bytes = 0;  ///< the size of one buffer, in bytes
  std::uint32_t buffers = 0;       ///< the number of buffers of each aggregator
  bool can_merge = false;  ///< true if a relay may send the bytes of all ranks of its node in one message (node.hpp)
  /// If each rank performs its own I/O, element i is the aggregator of domain i. Otherwise the list is empty.
  std::span<const int> owners;
};

struct Election {
  std::vector<int> aggregators;  ///< the aggregator of each domain, after domains are merged
  std::uint32_t together = 1;    ///< the number of neighbouring domains that are merged into one domain
  /// Element i is the tier of the buffers of domain i. The tier is an index into PlanOptions::media. If the list is
  /// empty, all domains use tier 0.
  std::vector<std::uint32_t> tiers = {};
  /// true if a relay sends the bytes of all ranks of its node to an aggregator on another node (node.hpp)
  bool merged = false;
};

/// A function that elects the aggregators. All ranks must get the same result from this function, or must all get an
/// exception.
using Elect = std::function<Election(const ElectionInputs &)>;

/// Returns `inputs.owners` if this list is not empty. Otherwise, elects one rank for each domain, in the order of the
/// domains. The candidates are the ranks that have bytes in the domain. Among these candidates, the function elects the
/// rank that is the aggregator of the fewest domains so far. If several candidates have equally few domains, the
/// function elects the candidate with the most bytes in the domain. If these candidates also have equally many bytes,
/// the function elects the lowest rank.
Election elect_by_bytes(const ElectionInputs &inputs);

// --- the plan ------------------------------------------------------------------------------------------------------

/// A special value of PlanOptions::own_run_bytes, with which the library chooses the value. The library chooses 64 KiB
/// if all ranks are on one node and the caller has not given a number of aggregators. The reason is that aggregators
/// save little time on one node. In all other cases, the library chooses 0, so ranks never perform their own I/O. The
/// reason is that a shared file system is faster if only a few ranks write.
constexpr std::uint64_t own_run_automatic = ~std::uint64_t{0};

/// The options of a plan. All ranks must give the same values of the options. Only the elements of `media` may differ
/// between ranks. If `buffer_bytes`, `buffers` or `aggregators` is 0, the library chooses the value.
struct PlanOptions {
  std::uint64_t buffer_bytes = 0;  ///< the size of one buffer in bytes; it must be a multiple of 4096
  std::uint32_t buffers = 0;       ///< the number of buffers of each aggregator, from 2 to 8
  std::uint32_t aggregators = 0;   ///< the number of domains, unless ranks perform their own I/O
  /// the maximum number of aggregators on each node, if `aggregators` is 0
  std::uint32_t aggregators_on_node = 1;
  /// The minimum mean length, in bytes, of contiguous runs for which ranks perform their own I/O. If the mean length on
  /// every rank is at least `own_run_bytes`, each rank performs its own I/O. If `own_run_bytes` is 0, ranks never
  /// perform their own I/O.
  std::uint64_t own_run_bytes = 0;
  bool reading_only = false;  ///< if true, several ranks may declare the same bytes, and the plan cannot write
  Elect elect = elect_by_bytes;
  /// Element i is the medium of tier i on this rank's node. `elect` chooses one of these tiers for each domain. If
  /// `media` is empty, all buffers are in ordinary memory.
  std::vector<Medium> media = {};
};

/// A summary of a plan. All members except `places` and `notes` have the same values on all ranks.
struct PlanSummary {
  std::uint64_t bytes = 0;  ///< the number of bytes that all ranks together declare for one step
  /// the smallest range of the file that contains all bytes of a step whose base offset is 0
  Range hull;
  std::vector<int> aggregators;  ///< the aggregator of each domain
  std::vector<std::uint64_t> domain_bytes;
  /// Element i is the tier of the buffers of domain i. The tier is an index into PlanOptions::media.
  std::vector<std::uint32_t> tiers;
  std::vector<Tally> tallies;
  std::vector<int> nodes;  ///< element i is the lowest rank on the node of rank i
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  bool own = false;                 ///< true if each rank performs its own I/O
  std::vector<std::string> places;  ///< one line for each tier: the place of this node's buffers on the tier
  /// the reason why this rank cannot share memory with the other ranks of its node, or empty
  std::vector<std::string> notes;
};

struct Decision {
  std::vector<std::vector<Range>> domains;
  std::vector<int> owners;  ///< the aggregator of each domain, if each rank performs its own I/O; otherwise empty
  PlanSummary summary;      ///< decide() sets only `bytes`, `hull`, `own`, `buffers` and `buffer_bytes`
  /// A byte that two ranks have declared. decide() searches for an overlap only if each rank performs its own I/O and
  /// the plan can write. `overlap` has no value if decide() has found no overlap.
  std::optional<Overlap> overlap;
};

/// All ranks must call this function. Makes all decisions of a plan. `problem` is the reason why this rank's
/// declaration is invalid, or "" if it is valid. Throws InputError on all ranks if at least one rank has a problem or
/// invalid options.
Decision decide(const Link &link, const Pattern &pattern, const PlanOptions &options, const std::string &problem);

}  // namespace outcrop::aggregate
