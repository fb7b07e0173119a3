#include "outcrop/aggregate/placement/placement.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "outcrop/aggregate/placement/assignment.hpp"
#include "outcrop/aggregate/placement/rooms.hpp"
#include "outcrop/aggregate/placement/workload.hpp"
#include "outcrop/aggregate/text/format.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// Steps of finding the least sum, a column for a pair of domains each, at most. More of them are not done in seconds.
constexpr double STEPS_MOST = 4e10;

bool can_be_least(std::size_t domains, const Rooms &rooms) {
  const auto rows = static_cast<double>(domains);
  return rows * rows * static_cast<double>(rooms.columns.group.size()) <= STEPS_MOST;
}

// A placement being made: what each domain costs anywhere.
struct Making {
  const Machine &machine;
  const Workload &work;
  const Rooms &rooms;
  Crowd crowd;
  std::span<const double> distances;  // of each domain's messages to each node

  Gathering gathering(std::size_t domain, std::uint32_t node) const {
    return work.gathering(domain, node, distances[domain * machine.nodes() + node]);
  }

  Cost cost(std::size_t domain, std::size_t column) const {
    const std::uint32_t node = rooms.columns.group[column];
    return work.cost(domain, node, gathering(domain, node), machine.tiers[rooms.tier[column]], crowd);
  }

  std::vector<double> costs() const {
    std::vector<double> result;
    result.reserve(work.domains() * rooms.columns.group.size());
    for (std::size_t domain = 0; domain < work.domains(); ++domain)
      for (std::size_t column = 0; column < rooms.columns.group.size(); ++column)
        result.push_back(cost(domain, column).total());
    return result;
  }
};

// Of the node's ranks the one with most of the domain's bytes that gathers no other; of equal ones the lowest.
std::uint32_t rank_on(std::uint32_t node, std::span<const Tally> tallies, const Machine &machine,
                      std::vector<char> &is_taken) {
  const std::size_t ranks = machine.node_of_rank.size();
  std::size_t best = ranks;
  std::uint64_t most = 0;
  for (const Tally &tally : tallies) {
    if (machine.node_of_rank[tally.rank] != node || is_taken[tally.rank] || tally.bytes <= most) continue;
    best = tally.rank;
    most = tally.bytes;
  }
  for (std::size_t rank = 0; best == ranks && rank < ranks; ++rank)
    if (machine.node_of_rank[rank] == node && !is_taken[rank]) best = rank;
  assert(best < ranks);
  is_taken[best] = true;
  return static_cast<std::uint32_t>(best);
}

Choice make_choice(std::size_t domain, std::uint32_t rank, std::uint32_t tier, const Workload &work,
                   const Machine &machine, std::span<const Tally> sorted, const Crowd &crowd,
                   const Gathering &gathering) {
  Choice choice;
  choice.rank = rank;
  choice.chosen = {machine.node_of_rank[rank], tier, {}};
  choice.gathering = gathering;
  choice.turns = work.turns(domain);
  choice.bytes = work.bytes(domain);
  choice.node_bytes = gathering.local_bytes;
  for (const Tally &tally : tallies_of(sorted, domain))
    if (tally.rank == rank) choice.rank_bytes = tally.bytes;
  for (std::uint32_t one = 0; one < machine.tiers.size(); ++one) {
    const Cost cost = work.cost(domain, choice.chosen.node, gathering, machine.tiers[one], crowd);
    choice.tiers.push_back({choice.chosen.node, one, cost});
  }
  choice.chosen.cost = choice.tiers[tier].cost;
  return choice;
}

// What the placement as a whole has taken, so that each choice can be told from what was not to be had.
class Judge {
 public:
  Judge(const Machine &machine, const Wishes &wishes, const Rooms &rooms, const std::vector<Choice> &choices)
      : machine_(machine), wishes_(wishes), rooms_(rooms), on_node_(machine.nodes()), on_tier_(rooms.slots.size()) {
    for (const Choice &choice : choices) {
      ++on_node_[choice.chosen.node];
      ++on_tier_[choice.chosen.node * machine.tiers.size() + choice.chosen.tier];
    }
  }

  void judge_tiers(Choice &choice) const {
    choice.wanted_tier = choice.chosen.tier;
    for (const Option &option : choice.tiers) {
      const Verdict verdict = of(option, choice.chosen);
      choice.verdicts.push_back(verdict);
      if (verdict == Verdict::forgets || verdict == Verdict::not_wished) continue;
      if (option.cost.total() < choice.tiers[choice.wanted_tier].cost.total()) choice.wanted_tier = option.tier;
    }
  }

  void find_runner_up(Choice &choice, std::size_t domain, const Making &making, std::span<const double> costs) const {
    std::size_t best = costs.size();
    for (std::size_t column = 0; column < costs.size(); ++column)
      if (rooms_.columns.group[column] != choice.chosen.node && (best == costs.size() || costs[column] < costs[best]))
        best = column;
    if (best == costs.size()) return;
    const std::uint32_t node = rooms_.columns.group[best];
    choice.runner_up = {node, rooms_.tier[best], making.cost(domain, best)};
    choice.runner_up_is_taken = on_node_[node] == rooms_.columns.group_room[node] || is_taken(*choice.runner_up);
  }

 private:
  std::size_t index(const Option &option) const { return option.node * machine_.tiers.size() + option.tier; }
  bool is_taken(const Option &option) const { return on_tier_[index(option)] == rooms_.slots[index(option)]; }

  Verdict of(const Option &option, const Option &chosen) const {
    if (option.tier == chosen.tier) return Verdict::chosen;
    const Verdict verdict = filtered(machine_.tiers[option.tier], wishes_);
    if (verdict != Verdict::chosen) return verdict;
    if (rooms_.slots[index(option)] == 0) return Verdict::no_room;
    return is_taken(option) && option.cost.total() < chosen.cost.total() ? Verdict::taken : Verdict::dearer;
  }

  const Machine &machine_;
  const Wishes &wishes_;
  const Rooms &rooms_;
  std::vector<std::uint32_t> on_node_, on_tier_;
};

void find_slowest(Placement &placement) {
  for (std::size_t domain = 0; domain < placement.choices.size(); ++domain) {
    const double seconds = placement.choices[domain].chosen.cost.total();
    if (domain > 0 && seconds <= placement.seconds) continue;
    placement.seconds = seconds;
    placement.slowest = domain;
  }
}

void note_filters(Placement &placement, const Machine &machine, const Wishes &wishes) {
  for (const Tier &tier : machine.tiers)
    if (filtered(tier, wishes) == Verdict::forgets)
      placement.notes.push_back(tier.name + " is left out: what it holds does not last as long as asked");
}

// Capacity that was missing, and nodes that others had taken.
void note_fallbacks(Placement &placement, const Machine &machine, const Wishes &wishes) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> instead;
  std::size_t displaced = 0;
  double most_lost = 0;
  for (const Choice &choice : placement.choices) {
    if (choice.wanted_tier != choice.chosen.tier) ++instead[{choice.wanted_tier, choice.chosen.tier}];
    if (!choice.runner_up || !choice.runner_up_is_taken) continue;
    const double lost = choice.chosen.cost.total() - choice.runner_up->cost.total();
    most_lost = std::max(most_lost, lost);
    displaced += lost > 0;
  }
  const std::string all = " of " + std::to_string(placement.choices.size()) + " aggregators ";
  for (const auto &[tiers, count] : instead) {
    const std::string &wanted = machine.tiers[tiers.first].name, &got = machine.tiers[tiers.second].name;
    placement.notes.push_back(std::to_string(count) + all + "have their buffers in " + got + " instead of " + wanted +
                              ": it has no room left for " + std::to_string(wishes.buffers) + " x " +
                              format_bytes(wishes.buffer_bytes) + " on their nodes");
  }
  if (displaced > 0)
    placement.notes.push_back(std::to_string(displaced) + all +
                              "are not on the node where their domain would cost least, since others have all places "
                              "there: " +
                              format_seconds(most_lost) + " longer at most");
}

// One number of domains, one way of sending: what a placement of it needs.
struct Prepared {
  Prepared(const Machine &machine, std::vector<Tally> sorted_, std::size_t domains, const Wishes &wishes_,
           std::uint32_t together_)
      : wishes(wishes_),
        sorted(std::move(sorted_)),
        together(together_),
        work(std::make_unique<Workload>(machine, sorted, domains, wishes)) {}
  Prepared(const Prepared &) = delete;
  Prepared &operator=(const Prepared &) = delete;

  Wishes wishes;
  std::vector<Tally> sorted;
  std::uint32_t together;
  std::unique_ptr<Workload> work;
};

Placement place_prepared(const Machine &machine, const Prepared &prepared, std::span<const double> distances) {
  const Workload &work = *prepared.work;
  const Wishes &wishes = prepared.wishes;
  const std::size_t domains = work.domains();
  std::vector<std::uint32_t> ranks_on_node(machine.nodes());
  for (const std::uint32_t node : machine.node_of_rank) ++ranks_on_node[node];
  const Rooms rooms = find_rooms(machine, ranks_on_node, domains, wishes);
  Placement placement;
  placement.merged = wishes.merged;
  placement.together = prepared.together;
  placement.crowd = {rooms.most_on_node, static_cast<std::uint32_t>(std::max<std::size_t>(1, domains))};
  const Making making{machine, work, rooms, placement.crowd, distances};
  const std::vector<double> costs = making.costs();
  if (!std::ranges::all_of(costs, [](double seconds) { return std::isfinite(seconds); }))
    throw InputError(
        "aggregators would take longer than numbers can tell; check the latencies and rates of the machine");
  placement.is_least = can_be_least(domains, rooms);
  const std::vector<std::uint32_t> column_of =
      placement.is_least ? assign(domains, rooms.columns, costs) : assign_in_turn(domains, rooms.columns, costs);
  std::vector<char> is_taken(machine.node_of_rank.size());
  for (std::size_t domain = 0; domain < domains; ++domain) {
    const std::uint32_t node = rooms.columns.group[column_of[domain]];
    const std::uint32_t rank = rank_on(node, tallies_of(prepared.sorted, domain), machine, is_taken);
    placement.choices.push_back(make_choice(domain, rank, rooms.tier[column_of[domain]], work, machine, prepared.sorted,
                                            placement.crowd, making.gathering(domain, node)));
  }
  const Judge judge(machine, wishes, rooms, placement.choices);
  const std::size_t columns = rooms.columns.group.size();
  for (std::size_t domain = 0; domain < domains; ++domain) {
    judge.judge_tiers(placement.choices[domain]);
    judge.find_runner_up(placement.choices[domain], domain, making,
                         std::span(costs).subspan(domain * columns, columns));
  }
  find_slowest(placement);
  note_filters(placement, machine, wishes);
  note_fallbacks(placement, machine, wishes);
  return placement;
}

}  // namespace

Placement place(const Machine &machine, std::span<const Tally> tallies, std::size_t domains, const Wishes &wishes) {
  const Prepared prepared(machine, sorted_tallies(tallies), domains, wishes, 1);
  const NodeTallies *const all[] = {&prepared.work->tallies()};
  return place_prepared(machine, prepared, distances_gathered(all, machine.nodes(), machine.distances).front());
}

Placement place_best(const Machine &machine, std::span<const Tally> tallies, std::size_t domains, const Wishes &wishes,
                     bool try_both) {
  const std::vector<Tally> sorted = sorted_tallies(tallies);
  const bool is_alone = machine.nodes() == machine.node_of_rank.size();  // a rank on each node: both are the same
  std::deque<Prepared> all;
  std::vector<const NodeTallies *> all_tallies;
  for (std::uint32_t together = 1; together == 1 || domains > together / 2; together *= 2) {
    const std::size_t count = (domains + together - 1) / together;
    for (const bool merged : try_both && !is_alone ? std::vector{true, false} : std::vector{wishes.merged}) {
      Wishes tried = wishes;
      tried.merged = merged;
      all.emplace_back(machine, merge_domains(sorted, together), count, tried, together);
      all_tallies.push_back(&all.back().work->tallies());
    }
  }
  const auto distances = distances_gathered(all_tallies, machine.nodes(), machine.distances);
  std::optional<Placement> best;
  std::optional<InputError> refused;
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {
      Placement placement = place_prepared(machine, all[i], distances[i]);
      if (!best || placement.seconds <= best->seconds) best = std::move(placement);
    } catch (const InputError &error) {
      refused = error;  // fewer aggregators may find room
    }
  }
  if (!best) throw InputError(*refused);
  return *std::move(best);
}

Placement predict(const Machine &machine, std::span<const Tally> tallies, const Wishes &wishes,
                  std::span<const std::uint32_t> ranks, std::span<const std::uint32_t> tiers) {
  assert(ranks.size() == tiers.size());
  const std::vector<Tally> sorted = sorted_tallies(tallies);
  const Workload work(machine, sorted, ranks.size(), wishes);
  std::vector<std::uint32_t> on_node(machine.nodes()), nodes;
  Placement placement;
  for (const std::uint32_t rank : ranks) {
    nodes.push_back(machine.node_of_rank[rank]);
    placement.crowd.on_node = std::max(placement.crowd.on_node, ++on_node[nodes.back()]);
  }
  placement.crowd.in_all = static_cast<std::uint32_t>(std::max<std::size_t>(1, ranks.size()));
  placement.merged = wishes.merged;
  placement.is_least = false;
  const std::vector<double> distances =
      distances_gathered_at(work.tallies(), machine.nodes(), machine.distances, nodes);
  for (std::size_t domain = 0; domain < ranks.size(); ++domain) {
    const Gathering gathering = work.gathering(domain, nodes[domain], distances[domain]);
    placement.choices.push_back(
        make_choice(domain, ranks[domain], tiers[domain], work, machine, sorted, placement.crowd, gathering));
  }
  find_slowest(placement);
  return placement;
}

double seconds_with(const Machine &machine, const Placement &placement, const Target &target, bool reading) {
  double seconds = 0;
  for (const Choice &choice : placement.choices) {
    const Surroundings around{machine.network, target, machine.distance_to_target[choice.chosen.node], placement.crowd};
    Tier tier = machine.tiers[choice.chosen.tier];
    if (reading) std::swap(tier.fill_bytes_per_second, tier.empty_bytes_per_second);
    seconds = std::max(seconds, cost(choice.gathering, tier, around, choice.turns).total());
  }
  return seconds;
}

Placement place_owned(const Machine &machine, std::span<const Tally> tallies, std::span<const std::uint32_t> ranks,
                      const Wishes &wishes) {
  std::vector<std::uint32_t> on_node(machine.nodes());
  for (const std::uint32_t rank : ranks) ++on_node[machine.node_of_rank[rank]];
  const Rooms rooms = find_rooms(machine, on_node, ranks.size(), wishes);
  std::optional<Placement> best;
  for (std::uint32_t tier = 0; tier < machine.tiers.size(); ++tier) {
    bool has_room = true;
    for (std::size_t node = 0; node < machine.nodes(); ++node)
      has_room = has_room && rooms.slots[node * machine.tiers.size() + tier] >= on_node[node];
    if (!has_room) continue;
    Placement placement = predict(machine, tallies, wishes, ranks, std::vector<std::uint32_t>(ranks.size(), tier));
    if (!best || placement.seconds < best->seconds) best = std::move(placement);
  }
  if (!best)
    throw InputError(
        "no tier alone has room for " + std::to_string(wishes.buffers) + " x " + format_bytes(wishes.buffer_bytes) +
        " of every rank of a node, which write their own bytes; give " + "smaller buffers, or 0 for own_run_bytes");
  return *std::move(best);
}

}  // namespace outcrop::aggregate
