#include "outcrop/aggregate/node/relays.hpp"

#include <algorithm>
#include <utility>

namespace outcrop::aggregate {
namespace {

// Of a table; where rounds are so many, ranks send for themselves.
constexpr std::uint64_t words_most = std::uint64_t{1} << 20;

}  // namespace

std::size_t Relay::place_of(int rank_of_node) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(ranks, rank_of_node) - ranks.begin());
}

Relays::Relays(const RelayWishes &wishes, std::span<const int> nodes, std::span<const int> aggregators) {
  std::map<std::pair<int, std::size_t>, std::uint64_t> most;
  for (const Tally &tally : wishes.tallies) {
    const int rank = static_cast<int>(tally.rank), node = nodes[tally.rank];
    if (node == nodes[static_cast<std::size_t>(aggregators[tally.domain])]) continue;
    const std::pair<int, std::size_t> key{node, tally.domain};
    Relay &relay = relays_[key];
    relay.domain = tally.domain;
    relay.rounds = wishes.rounds[tally.domain];
    relay.ranks.push_back(rank);
    relay.bytes += tally.bytes;
    if (tally.bytes > most[key]) {
      most[key] = tally.bytes;
      relay.rank = rank;
    }
  }
  std::erase_if(
      relays_, [](const auto &each) { return each.second.ranks.size() < 2 || each.second.table_words() > words_most; });
}

const Relay *Relays::find(std::size_t domain, int node) const {
  const auto found = relays_.find({node, domain});
  return found == relays_.end() ? nullptr : &found->second;
}

std::vector<const Relay *> Relays::on_node(int node) const {
  std::vector<const Relay *> relays;
  for (auto each = relays_.lower_bound({node, 0}); each != relays_.end() && each->first.first == node; ++each)
    relays.push_back(&each->second);
  return relays;
}

}  // namespace outcrop::aggregate
