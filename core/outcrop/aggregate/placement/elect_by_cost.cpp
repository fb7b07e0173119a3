#include "outcrop/aggregate/placement/elect_by_cost.hpp"

#include <utility>

namespace outcrop::aggregate {

namespace {

// All domains of the ballot, with ranks of a node that send together, or not.
Placement place_exactly(const Placed &placed, const Ballot &ballot) {
  Wishes apart = placed.wishes;
  apart.merged = false;
  Placement best = place(placed.machine, ballot.tallies, ballot.domains, apart);
  if (!ballot.can_merge || placed.machine.nodes() == placed.machine.node_of_rank.size()) return best;
  Wishes together = placed.wishes;
  together.merged = true;
  Placement merged = place(placed.machine, ballot.tallies, ballot.domains, together);
  return merged.seconds < best.seconds ? merged : best;
}

}  // namespace

Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly) {
  return [placed = std::move(placed), exactly](const Ballot &ballot) {
    placed->wishes.buffer_bytes = ballot.buffer_bytes;
    placed->wishes.buffers = ballot.buffers;
    placed->wishes.merged = false;
    const std::vector<std::uint32_t> owners(ballot.owners.begin(), ballot.owners.end());
    if (!owners.empty())
      placed->placement = place_owned(placed->machine, ballot.tallies, owners, placed->wishes);
    else
      placed->placement =
          exactly ? place_exactly(*placed, ballot)
                  : place_best(placed->machine, ballot.tallies, ballot.domains, placed->wishes, ballot.can_merge);
    Election election{{}, placed->placement.together, {}, placed->placement.merged};
    for (const Choice &choice : placed->placement.choices) {
      election.aggregators.push_back(static_cast<int>(choice.rank));
      election.tiers.push_back(choice.chosen.tier);
    }
    return election;
  };
}

}  // namespace outcrop::aggregate
