#include "outcrop/aggregate/elect_by_cost.hpp"

#include <utility>

namespace outcrop::aggregate {

Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly) {
  return [placed = std::move(placed), exactly](const Ballot &ballot) {
    placed->wishes.buffer_bytes = ballot.buffer_bytes;
    placed->wishes.buffers = ballot.buffers;
    placed->wishes.merged = false;  // each rank of another node sends its own messages
    const std::vector<std::uint32_t> owners(ballot.owners.begin(), ballot.owners.end());
    if (!owners.empty())
      placed->placement = place_owned(placed->machine, ballot.tallies, owners, placed->wishes);
    else
      placed->placement = exactly ? place(placed->machine, ballot.tallies, ballot.domains, placed->wishes)
                                  : place_best(placed->machine, ballot.tallies, ballot.domains, placed->wishes, false);
    Election election{{}, placed->placement.together};
    for (const Choice &choice : placed->placement.choices) {
      election.aggregators.push_back(static_cast<int>(choice.rank));
      election.tiers.push_back(choice.chosen.tier);
    }
    return election;
  };
}

}  // namespace outcrop::aggregate
