// Placement chooses the aggregator of each domain, and the tier for the aggregator's buffers on its node.
//
//     tallies of ranks ──► tallies of nodes ──► cost of each domain on each node and tier ──► assign ──► rank of the node
//      (bytes by domain)    + distances          filters: persistence, requested tier         capacity: rooms
//
// The ranks of a node share memory, so a cost depends on the node and the tier, but not on the rank. First, placement
// chooses a node and a tier for each domain, so that the sum of costs is minimal. Then it chooses the aggregator among
// the ranks of this node: the rank with the most bytes of the domain. A rank is the aggregator of at most one domain,
// so placement ignores ranks that are already aggregators.
//
// The aggregators of a node share the node's network cards, tiers and local target. So aggregators are spread evenly
// over the nodes. The predicted cost assumes the same number of aggregators on each node.
//
// Capacity and persistence exclude tiers. Each tier of a node has room for the buffers of a certain number of
// aggregators. If other aggregators use all room of a cheaper tier, the Choice of the domain contains this tier, and a
// note names it.
//
// All functions of this file are deterministic and have no side effects. So ranks that have the same tallies and the
// same machine compute the same placement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/placement/cost.hpp"

namespace outcrop::aggregate {

/// A possible place for the aggregator of a domain: a node and a tier, with the cost.
struct Option {
  std::uint32_t node = 0;
  std::uint32_t tier = 0;
  Cost cost;
};

/// The reason why a tier of the node was chosen or not. `dearer` means that the tier has a higher cost. `taken` means
/// that other aggregators use all room of the tier.
enum class Verdict : std::uint8_t { chosen, dearer, taken, no_room, too_volatile, not_requested };

struct Choice {
  std::uint32_t rank = 0;
  Option chosen;
  Gathering gathering;  ///< the bytes that the aggregator collects; the cost is computed from these bytes
  Buffering buffering;
  std::uint64_t bytes = 0;          ///< the number of bytes of the domain
  std::uint64_t rank_bytes = 0;     ///< the number of bytes that the rank `rank` has in the domain
  std::uint64_t node_bytes = 0;     ///< the number of bytes that all ranks of the chosen node have in the domain
  std::vector<Option> tiers;        ///< all tiers of the chosen node
  std::vector<Verdict> verdicts;    ///< the reason for each element of `tiers`
  std::optional<Option> runner_up;  ///< the cheapest place on another node
  bool runner_up_taken = false;     ///< true if other aggregators use all the room of the tier in `runner_up`
  std::uint32_t wanted_tier = 0;    ///< the cheapest tier on the chosen node, even if it has no room
};

struct Placement {
  std::vector<Choice> choices;  ///< the choice for each domain
  std::size_t slowest = 0;      ///< the domain that takes the longest time
  double seconds = 0;           ///< the time of the slowest domain
  Contention contention;
  bool merged = false;
  bool is_least = true;        ///< true if no other placement has a lower sum of costs
  std::uint32_t together = 1;  ///< the number of the caller's domains in each merged domain
  /// lines about excluded tiers, and about choices that are not the cheapest, with the reasons
  std::vector<std::string> notes;
};

/// Places `domains` domains. Throws InputError if the machine has no room for all domains. The message gives a remedy.
Placement place(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                const PlacementOptions &options);

/// Places domains, and also chooses their number. First tries the given domains. Then merges groups of 2, 4, 8, ...
/// neighbouring domains, and tries the merged domains. Returns the placement with the shortest time. If several
/// placements have this time, returns the placement with the fewest domains. If `try_both` is true, tries each number
/// of domains twice. In one trial, the ranks of a node send one common message. In the other trial, each rank of a node
/// sends a separate message.
Placement place_best(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                     const PlacementOptions &options, bool try_both);

/// Returns the predicted time of a placement for another target: `target` replaces the machine's target. If `reading`
/// is false, the time is for writes to the target. If `reading` is true, the time is for reads, so each tier's rates of
/// filling and emptying are exchanged.
double seconds_with(const Machine &machine, const Placement &placement, const Target &target, bool reading);

/// Predicts the costs of a given placement, and returns the placement with these costs. `ranks` contains the aggregator
/// of each domain, and `tiers` the tier of the aggregator's buffers. No rank may occur twice.
Placement predict(const Machine &machine, std::span<const Tally> tallies, const PlacementOptions &options,
                  std::span<const std::uint32_t> ranks, std::span<const std::uint32_t> tiers);

/// Returns a text of several lines. The text describes the placement with its notes. It also lists the `max_domains`
/// slowest domains. For each of these domains, it gives the costs of other places for the aggregator.
std::string explain(const Placement &placement, const Machine &machine, const PlacementOptions &options,
                    std::size_t max_domains = 1);

/// A placement, with its machine and its options.
struct Placed {
  Machine machine;
  PlacementOptions options;
  Placement placement;
};

/// Returns a function that elects aggregators. The returned function places domains on `placed->machine` with
/// `placed->options`, and stores the result in `placed`. It uses the size and the number of buffers that its inputs
/// give. If `exactly` is true, it also uses the number of domains that its inputs give. Otherwise place_best() chooses
/// the number of domains. The returned function throws InputError if each rank performs its own I/O and no tier has
/// room for the buffers.
Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly);

// --- staging ---------------------------------------------------------------------------------------------------------
// Steps are staged on a tier of the nodes, or written directly to the target. The decision uses the model of cost.hpp.
//
//     straight   [ write to the target ] computing [ write to the target ] computing ...              [ read from it ]
//     staged     [ write to the tier ] computing [ wait ][ write to the tier ] computing ...   [ read from the tier ]
//                                      [ drained: tier ─► target ]
//
// The cost of a step is the time for which the program waits. The program waits for the write and for each read of the
// step. Between two steps, the program computes while the drain runs. If the drain takes longer than this computing,
// the program also waits until the drain has ended. The drain alternately reads from the tier and writes to the target.
// With staging, the thread of an aggregator also allocates pages and computes checksums (StagingRates).
//
// A tier can be used if it is a file system of the nodes, has the requested persistence, and has room for a step. If
// the target is local to the node and writes need not be durable, steps are written directly. In this case, the page
// cache works like a stage: the system writes the bytes to the device later.

/// The way in which the program is expected to use steps.
struct StepUsage {
  /// the time for which the program computes between the end of a write and the next write
  double seconds_between = 0;
  /// the expected number of times that the program reads a step soon after its write, with the same plan
  double reads_back = 0;
  bool durable = false;                        ///< true if a write ends only when its bytes are on the device
  Persistence persistence = Persistence::job;  ///< the minimum persistence of a stage
  std::uint64_t room_bytes = 0;  ///< the maximum size of a stage on a node; the value 0 means all room of the tier
};

/// The rates of the work that staging adds to an aggregator's thread. This work does not include the transfers from or
/// to the tier. The values were measured by scripts/staged_beside_direct.py on the machine of docs/decisions.md, with a
/// stage in memory.
struct StagingRates {
  double write_bytes_per_second = 2.5e9;  ///< the rate of allocating pages and computing a checksum
  double read_bytes_per_second = 8e9;     ///< the rate of testing a checksum
};

/// The predicted seconds of a step.
struct StepForecast {
  double write = 0;
  double wait = 0;  ///< the time for which the program waits until the drain has ended
  double read = 0;  ///< the time of one read of the step
  double total(const StepUsage &usage) const { return write + wait + usage.reads_back * read; }
};

/// The cost of staging on one tier. If the tier cannot be used, `refusal` gives the reason.
struct StageOption {
  std::uint32_t tier = 0;
  StepForecast forecast;
  double seconds_drain = 0;
  std::string refusal;
};

struct Staging {
  StepUsage usage;
  StepForecast straight;              ///< the times without a stage
  std::vector<StageOption> options;   ///< the cost of staging on each tier that is a file system
  std::optional<std::size_t> chosen;  ///< the index of the chosen tier in `options`; no value if steps are not staged
};

/// Decides whether the steps of a placement are staged. The result is the same on all ranks.
Staging decide_staging(const Machine &machine, const Placement &placement, const StepUsage &usage,
                       const StagingRates &rates = {});

/// Returns a text with one line for direct writes and one line for each tier on which steps could be staged.
std::string explain(const Staging &staging, const Machine &machine);

// --- assignment ------------------------------------------------------------------------------------------------------
// An assignment gives each row a column such that the sum of costs is minimal.
//
//     row ──cost──► column (room) ──► group (room)          row: a domain; column: a tier of a node; group: a node
//
// The room of a column is the maximum number of rows that can be assigned to the column. The room of a group is the
// maximum number of rows for all columns of the group together. The result depends only on the arguments: if costs are
// equal, the lowest column is taken.

struct Columns {
  std::vector<std::uint32_t> group;       ///< the group of each column, in ascending order
  std::vector<std::uint32_t> room;        ///< the room of each column
  std::vector<std::uint32_t> group_room;  ///< the room of each group
};

/// Returns the maximum number of rows that fit into the columns.
std::uint64_t places(const Columns &columns);

/// Returns the column of each row. `costs` contains the costs of row 0 for all columns, then the costs of row 1, and so
/// on. Costs must be finite and at least 0. All rows must fit into the columns.
std::vector<std::uint32_t> assign(std::size_t rows, const Columns &columns, std::span<const double> costs);

/// Assigns one row after the other: each row gets the cheapest column that still has room. The sum of costs is usually
/// not minimal. Use this function for inputs that are too large for assign().
std::vector<std::uint32_t> assign_in_turn(std::size_t rows, const Columns &columns, std::span<const double> costs);

}  // namespace outcrop::aggregate
