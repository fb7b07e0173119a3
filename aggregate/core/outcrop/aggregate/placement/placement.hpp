// Which rank gathers which domain, in buffers on which tier of its node.
//
//     tallies of ranks ──► of nodes ──► cost of each domain on each node and tier ──► assign ──► rank of the node
//      (bytes by domain)    + distances   persistence and the tier wished for filter   capacity: rooms
//
// A cost depends on the node and the tier, not on which rank of the node gathers: ranks of a node share memory. So a
// node and a tier are chosen first, all domains together, least sum of costs; then of the node's ranks the one that has
// most of the domain's bytes and gathers no other. A rank gathers one domain at most. Aggregators are spread: no node
// has more than it must have, because cards, tiers and node-local targets are shared by those of a node, and the cost
// takes that number for all nodes.
//
// Capacity is a filter: a tier of a node takes as many aggregators as their buffers find room on it. Persistence is
// one, too. What would have been cheaper without capacity is kept with each choice, and said in the notes.
//
// Pure and deterministic: every rank that knows the same tallies and the same machine computes the same placement.
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

/// Somewhere a domain can be gathered, and what it costs there.
struct Option {
  std::uint32_t node = 0;
  std::uint32_t tier = 0;
  Cost cost;
};

/// Why a tier of the chosen node was not taken. `taken`: by other aggregators, all of it.
enum class Verdict : std::uint8_t { chosen, dearer, taken, no_room, forgets, not_asked };

struct Choice {
  std::uint32_t rank = 0;
  Option chosen;
  Gathering gathering;  ///< what its cost comes from, with the machine's figures
  Turns turns;
  std::uint64_t bytes = 0;          ///< of the domain
  std::uint64_t rank_bytes = 0;     ///< of it that the rank has itself
  std::uint64_t node_bytes = 0;     ///< and its node
  std::vector<Option> tiers;        ///< all of the chosen node
  std::vector<Verdict> verdicts;    ///< of these
  std::optional<Option> runner_up;  ///< the cheapest on another node
  bool runner_up_taken = false;     ///< cheaper or not, other aggregators have all places there
  std::uint32_t wanted_tier = 0;    ///< of the cheapest place if every tier had room
};

struct Placement {
  std::vector<Choice> choices;  ///< of each domain
  std::size_t slowest = 0;      ///< the domain that takes longest; the others are done by then
  double seconds = 0;           ///< of the slowest
  Crowd crowd;
  bool merged = false;
  bool is_least = true;            ///< no other placement has a lower sum of costs
  std::uint32_t together = 1;      ///< how many of the domains that were asked for are one here
  std::vector<std::string> notes;  ///< what was left out or taken instead, and why
};

/// Places `domains` domains. Throws InputError where they have no places, with what would have.
Placement place(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                const PlacementOptions &options);

/// Places as many domains as are done soonest: those given, or 2, 4, 8, ... neighbours made one. Fewer where it takes
/// no longer. With `try_both`, ranks of a node send together or not, whichever is sooner.
Placement place_best(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                     const PlacementOptions &options, bool try_both);

/// What it would cost, by the same ranks and tiers, with another target: until the last domain is done. `reading`: from
/// there, so that buffers are filled by what empties them in writing.
double seconds_with(const Machine &machine, const Placement &placement, const Target &target, bool reading);

/// Places domains that have their aggregators already on the tier that takes least time of those where all find room.
/// Throws InputError where none has.
Placement place_owned(const Machine &machine, std::span<const Tally> tallies, std::span<const std::uint32_t> ranks,
                      const PlacementOptions &options);

/// What a placement made elsewhere would cost: the rank of each domain, no two the same, and its tier.
Placement predict(const Machine &machine, std::span<const Tally> tallies, const PlacementOptions &options,
                  std::span<const std::uint32_t> ranks, std::span<const std::uint32_t> tiers);

/// A placement, with what is needed to explain it.
struct Placed {
  Machine machine;
  PlacementOptions options;
  Placement placement;
};

/// Places by `placed`'s machine and options, but for the buffers, which are the plan's, and keeps there what was decided.
/// With `exactly`, all domains of the inputs; otherwise as many as are done soonest. Ranks of a node send together where that
/// is sooner.
Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly);

}  // namespace outcrop::aggregate
