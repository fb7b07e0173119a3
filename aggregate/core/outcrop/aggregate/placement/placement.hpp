// Placement chooses the aggregator of each domain. It also chooses the tier of the aggregator's node for the buffers.
//
//     tallies of ranks ──► tallies of nodes ──► cost of each domain on each node and tier ──► assign ──► rank of the node
//      (bytes by domain)    + distances          filters: persistence, requested tier         capacity: rooms
//
// The ranks of a node share memory. Therefore a cost depends on the node and the tier, but not on the rank. Placement
// first chooses a node and a tier for each domain, so that the sum of costs is minimal. Then placement chooses the
// aggregator among the ranks of the node: the rank with the most bytes of the domain. A rank can be the aggregator of
// only one domain, so placement ignores ranks that are already aggregators.
//
// The aggregators of a node share the node's network cards, tiers and local target. Therefore placement spreads the
// aggregators evenly over the nodes. The predicted cost assumes that each node has the same number of aggregators.
//
// Capacity and persistence exclude tiers. The room on each tier of a node is enough for the buffers of a certain number
// of aggregators. A cheaper tier may have no room left because of other aggregators. The Choice of the domain then
// contains this tier, and a note names the tier.
//
// All functions of this file are deterministic and have no side effects. Therefore all ranks compute the same placement
// from the same tallies and the same machine.
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

/// A possible place for the aggregator of a domain: a node and a tier, with the cost of this place.
struct Option {
  std::uint32_t node = 0;
  std::uint32_t tier = 0;
  Cost cost;
};

/// The reason why a tier of the chosen node was chosen or was not chosen. `dearer` means that the tier has a higher
/// cost. `taken` means that other aggregators use all room of the tier.
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

/// Places `domains` domains. Throws InputError if the machine has too little room for all domains. The message gives a
/// remedy.
Placement place(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                const PlacementOptions &options);

/// Places domains, and also chooses the number of domains. First tries the given domains. After that, merges groups of
/// 2, 4, 8, ... neighbouring domains, and tries the merged domains. Returns the placement with the shortest predicted
/// time. If several placements have the shortest time, returns the one with the fewest domains. If `try_both` is true,
/// the function tries each number of domains twice. In the first trial, the ranks of a node send one common message. In
/// the second trial, each rank of a node sends its own message.
Placement place_best(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                     const PlacementOptions &options, bool try_both);

/// Returns the predicted time of a placement if `target` replaces the machine's target. If `reading` is false, the
/// returned time is for writes to the target. If `reading` is true, the returned time is for reads, and the rates of
/// filling and emptying each tier are exchanged.
double seconds_with(const Machine &machine, const Placement &placement, const Target &target, bool reading);

/// Predicts the costs of a placement that the caller gives, and returns the placement with these costs. `ranks`
/// contains the aggregator of each domain, and `tiers` the tier of the aggregator's buffers. No rank may occur twice.
Placement predict(const Machine &machine, std::span<const Tally> tallies, const PlacementOptions &options,
                  std::span<const std::uint32_t> ranks, std::span<const std::uint32_t> tiers);

/// Returns a text of several lines. The text describes the placement, with its notes. The text also lists the
/// `max_domains` slowest domains. For each of the slowest domains, the text gives the costs of other places for the
/// aggregator.
std::string explain(const Placement &placement, const Machine &machine, const PlacementOptions &options,
                    std::size_t max_domains = 1);

/// A placement, together with the machine and the options from which it was computed.
struct Placed {
  Machine machine;
  PlacementOptions options;
  Placement placement;
};

/// Returns a function that elects aggregators. The returned function places the domains on `placed->machine` with
/// `placed->options`, and stores the placement in `placed`. The inputs of the returned function give the size and the
/// number of buffers. If `exactly` is true, the inputs also give the number of domains. If `exactly` is false,
/// place_best() chooses the number of domains. The returned function throws InputError if no tier has room for the
/// buffers of ranks that perform their own I/O.
Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly);

// --- staging ---------------------------------------------------------------------------------------------------------
// Steps are staged on a tier of the nodes, or written directly to the target. The decision about staging uses the model
// of cost.hpp.
//
//     straight   [ write to the target ] computing [ write to the target ] computing ...              [ read from it ]
//     staged     [ write to the tier ] computing [ wait ][ write to the tier ] computing ...   [ read from the tier ]
//                                      [ drained: tier ─► target ]
//
// The cost of a step is the time in which the program waits. The program waits for the write and for each read of the
// step. The program computes between two steps. At the same time, the drain runs. If the drain takes longer than the
// computing, the program must also wait for the end of the drain. The drain reads from the tier and writes to the
// target in turns. With staging, the thread of an aggregator also allocates pages and computes checksums
// (StagingRates).
//
// Steps can be staged on a tier if the tier is a file system of the nodes, has the requested persistence, and has room
// for a step. Steps are written directly if the target is local to the node and writes need not be durable. Then the
// page cache works like a stage: the system writes the bytes to the device later.

/// The caller's forecast of how the program uses steps.
struct StepUsage {
  /// the time for which the program computes between the end of a write and the next write
  double seconds_between = 0;
  /// the expected number of times that the program reads a step soon after its write, with the same plan
  double reads_back = 0;
  bool durable = false;                        ///< true if a write ends only when its bytes are on the device
  Persistence persistence = Persistence::job;  ///< the minimum persistence of a stage
  std::uint64_t room_bytes = 0;  ///< the maximum size of a stage on a node; the value 0 means all room of the tier
};

/// The rates of the additional work of an aggregator's thread if steps are staged. The additional work does not include
/// the transfers from or to the tier. scripts/staged_beside_direct.py measured these values on the machine of
/// docs/decisions.md, with a stage in memory.
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

/// The cost of staging on one tier. `refusal` gives the reason if steps cannot be staged on the tier.
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

/// Decides whether the steps of a placement are staged. All ranks get the same result.
Staging decide_staging(const Machine &machine, const Placement &placement, const StepUsage &usage,
                       const StagingRates &rates = {});

/// Returns a text with one line for direct writes, and one line for each tier that can hold a stage.
std::string explain(const Staging &staging, const Machine &machine);

// --- assignment ------------------------------------------------------------------------------------------------------
// An assignment gives each row a column such that the sum of costs is minimal.
//
//     row ──cost──► column (room) ──► group (room)          row: a domain; column: a tier of a node; group: a node
//
// The room of a column is the maximum number of rows in the column. The room of a group is the maximum number of rows
// in all columns of the group together. The result depends only on the arguments: if columns have equal costs, the
// lowest column is taken.

struct Columns {
  std::vector<std::uint32_t> group;       ///< the group of each column, in ascending order
  std::vector<std::uint32_t> room;        ///< the room of each column
  std::vector<std::uint32_t> group_room;  ///< the room of each group
};

/// Returns the maximum number of rows that fit into the columns.
std::uint64_t places(const Columns &columns);

/// Returns the column of each row. `costs` contains the costs of row 0 for all columns, then the costs of row 1, and so
/// on. All costs must be finite and at least 0. The columns must have room for all rows.
std::vector<std::uint32_t> assign(std::size_t rows, const Columns &columns, std::span<const double> costs);

/// Assigns one row after the other. Each row gets the cheapest column that still has room. The sum of the costs is
/// usually higher than with assign(). Use this function if the inputs are too large for assign().
std::vector<std::uint32_t> assign_in_turn(std::size_t rows, const Columns &columns, std::span<const double> costs);

}  // namespace outcrop::aggregate
