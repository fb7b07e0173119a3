// Chooses the aggregator of each domain, and the tier of its node that holds its buffers.
//
//     tallies of ranks ──► tallies of nodes ──► cost of each domain on each node and tier ──► assign ──► rank of the node
//      (bytes by domain)    + distances          filters: persistence, requested tier         capacity: rooms
//
// A cost depends on the node and the tier, but not on the rank: the ranks of a node share memory. So the first step chooses a
// node and a tier for each domain, with the minimum sum of costs. The second step chooses a rank of that node: of the ranks
// without a domain, the one with the most bytes of this domain. A rank has at most one domain.
//
// Aggregators are spread evenly over the nodes, because the aggregators of a node share its cards, tiers and local targets.
// The cost uses the same number of aggregators for each node.
//
// Capacity and persistence are filters. A tier of a node takes as many aggregators as have room there for their buffers. If a
// cheaper tier was full, the choice records this, and the notes name it.
//
// Everything here is deterministic and has no side effects: ranks that know the same tallies and the same machine compute the
// same placement.
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

/// A place for the aggregator of a domain, with its cost.
struct Option {
  std::uint32_t node = 0;
  std::uint32_t tier = 0;
  Cost cost;
};

/// Why a tier of the chosen node was chosen or not. `taken`: other aggregators use all of its room.
enum class Verdict : std::uint8_t { chosen, dearer, taken, no_room, too_volatile, not_requested };

struct Choice {
  std::uint32_t rank = 0;
  Option chosen;
  Gathering gathering;  ///< what its cost follows from, with the machine's figures
  Buffering buffering;
  std::uint64_t bytes = 0;          ///< of the domain
  std::uint64_t rank_bytes = 0;     ///< the part of them that the rank itself has
  std::uint64_t node_bytes = 0;     ///< the part of them that the rank's node has
  std::vector<Option> tiers;        ///< all tiers of the chosen node
  std::vector<Verdict> verdicts;    ///< for each of these tiers
  std::optional<Option> runner_up;  ///< the cheapest place on another node
  bool runner_up_taken = false;     ///< other aggregators use all room at the runner-up
  std::uint32_t wanted_tier = 0;    ///< the tier that would be cheapest on this node if every tier had room
};

struct Placement {
  std::vector<Choice> choices;  ///< for each domain
  std::size_t slowest = 0;      ///< the domain that takes longest
  double seconds = 0;           ///< the time of this domain
  Contention contention;
  bool merged = false;
  bool is_least = true;            ///< no other placement has a lower sum of costs
  std::uint32_t together = 1;      ///< the number of given domains that form one domain here
  std::vector<std::string> notes;  ///< excluded tiers, and choices that are not the cheapest, with the reason
};

/// Places `domains` domains. Throws InputError if they have no room; the message says what would fit.
Placement place(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                const PlacementOptions &options);

/// Chooses the number of domains, too: the given number, or 2, 4, 8, ... neighbours merged into one. Returns the placement
/// with the shortest time; of equal ones the one with the fewest domains. With `try_both`, it also compares ranks that send
/// together with ranks that send separately.
Placement place_best(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                     const PlacementOptions &options, bool try_both);

/// The predicted time of the same ranks and tiers with another target. With `reading`, bytes come from the target, so each
/// tier's rates of filling and emptying are swapped.
double seconds_with(const Machine &machine, const Placement &placement, const Target &target, bool reading);

/// The predicted cost of a given placement. `ranks` and `tiers` hold the aggregator of each domain and its tier; no rank
/// occurs twice.
Placement predict(const Machine &machine, std::span<const Tally> tallies, const PlacementOptions &options,
                  std::span<const std::uint32_t> ranks, std::span<const std::uint32_t> tiers);

/// A text of lines: the placement with its notes, then the `max_domains` slowest domains, with the cost of other places.
std::string explain(const Placement &placement, const Machine &machine, const PlacementOptions &options,
                    std::size_t max_domains = 1);

/// A placement and what explain() needs for it.
struct Placed {
  Machine machine;
  PlacementOptions options;
  Placement placement;
};

/// Returns a function that places domains on `placed->machine` by `placed->options`, with the buffers of the inputs, and
/// stores the result in `placed`. With `exactly` the number of domains is that of the inputs; otherwise place_best() chooses it.
/// Throws InputError if domains with given owners have no room.
Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly);

// --- assignment ------------------------------------------------------------------------------------------------------
// Gives each row a column so that the sum of costs is minimal.
//
//     row ──cost──► column (room) ──► group (room)          row: a domain; column: a tier of a node; group: a node
//
// A column takes at most as many rows as it has room, and so does a group, whose columns share its room. The result depends
// only on the arguments: of equal costs the lowest column wins.

struct Columns {
  std::vector<std::uint32_t> group;       ///< of each column, ascending
  std::vector<std::uint32_t> room;        ///< of each column
  std::vector<std::uint32_t> group_room;  ///< of each group
};

/// The maximum number of rows that can have a column.
std::uint64_t places(const Columns &columns);

/// The column of each row. `costs` holds the costs of row 0 for all columns, then of row 1, and so on. They are finite and at
/// least 0. There must be places for all rows.
std::vector<std::uint32_t> assign(std::size_t rows, const Columns &columns, std::span<const double> costs);

/// Gives each row, in order, the cheapest column that is left. The sum is usually not minimal. It is for inputs that take
/// `assign` too long.
std::vector<std::uint32_t> assign_in_turn(std::size_t rows, const Columns &columns, std::span<const double> costs);

}  // namespace outcrop::aggregate
