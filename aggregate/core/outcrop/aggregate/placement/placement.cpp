#include "outcrop/aggregate/placement/placement.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// --- capacity and persistence, which filter places --------------------------------------------------------------------

struct Capacity {
  Columns columns;                  // each column is a tier of a node, and each group is a node
  std::vector<std::uint32_t> tier;  // the tier of each column
  // The maximum numbers of aggregators, first for each tier of node 0, then for each tier of node 1, and so on.
  std::vector<std::uint32_t> slots;
  std::uint32_t max_on_node = 1;  // the maximum number of aggregators on a node
};

// Returns too_volatile or not_requested if the options exclude the tier. Otherwise returns `chosen`.
Verdict filtered(const Tier &tier, const PlacementOptions &options) {
  if (!options.tier.empty() && tier.name != options.tier) return Verdict::not_requested;
  return tier.persistence < options.persistence ? Verdict::too_volatile : Verdict::chosen;
}

std::string names(const Machine &machine) {
  std::string text;
  for (const Tier &tier : machine.tiers)
    text += (text.empty() ? "" : ", ") + tier.name + " (" + in_words(tier.persistence) + ")";
  return text;
}

// Throws InputError if the options exclude all tiers of the machine.
void check_options(const Machine &machine, const PlacementOptions &options) {
  bool is_known = options.tier.empty(), is_allowed = false;
  for (const Tier &tier : machine.tiers) {
    is_known |= tier.name == options.tier;
    is_allowed |= filtered(tier, options) == Verdict::chosen;
  }
  if (!is_known) throw InputError("aggregation tier '" + options.tier + "' is unknown; there are " + names(machine));
  if (!is_allowed)
    throw InputError("no tier for aggregation has the requested persistence " + in_words(options.persistence) +
                     "; there are " + names(machine));
}

std::vector<std::uint32_t> find_slots(const Machine &machine, const PlacementOptions &options) {
  const std::uint64_t needed = options.buffer_bytes * options.buffers;
  std::vector<std::uint32_t> slots(machine.room_bytes.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Tier &tier = machine.tiers[i % machine.tiers.size()];
    if (filtered(tier, options) != Verdict::chosen) continue;
    slots[i] = static_cast<std::uint32_t>(std::min<std::uint64_t>(machine.room_bytes[i] / needed, 1U << 30));
  }
  return slots;
}

// Compares two tiers. Returns true if buffers on tier `one` are at least as cheap as buffers on tier `other`, for every
// domain. If the costs of both tiers are equal for every domain, returns `is_first`.
bool dominates(const Tier &one, const Tier &other, bool is_first) {
  if (one.latency_seconds > other.latency_seconds || one.fill_bytes_per_second < other.fill_bytes_per_second ||
      one.empty_bytes_per_second < other.empty_bytes_per_second)
    return false;
  return is_first || one.latency_seconds < other.latency_seconds ||
         one.fill_bytes_per_second > other.fill_bytes_per_second ||
         one.empty_bytes_per_second > other.empty_bytes_per_second;
}

// Returns true if placement can ignore the tier `tier` of a node. A tier can be ignored if another tier of the node is
// at least as cheap for every domain, and has room for all aggregators of the node.
bool superfluous(const Machine &machine, std::span<const std::uint32_t> slots, std::size_t tier, std::uint32_t needed) {
  for (std::size_t other = 0; other < slots.size(); ++other)
    if (other != tier && slots[other] >= needed && dominates(machine.tiers[other], machine.tiers[tier], other < tier))
      return true;
  return false;
}

void add_columns(Capacity &capacity, const Machine &machine) {
  const std::size_t tiers = machine.tiers.size();
  for (std::size_t node = 0; node < machine.nodes(); ++node) {
    const std::uint32_t limit = capacity.columns.group_room[node];
    const std::span<const std::uint32_t> slots = std::span(capacity.slots).subspan(node * tiers, tiers);
    for (std::size_t tier = 0; tier < tiers; ++tier) {
      if (limit == 0 || slots[tier] == 0 || superfluous(machine, slots, tier, limit)) continue;
      capacity.columns.group.push_back(static_cast<std::uint32_t>(node));
      capacity.columns.room.push_back(std::min(slots[tier], limit));
      capacity.tier.push_back(static_cast<std::uint32_t>(tier));
    }
  }
}

// Node i can have at most limits[i] aggregators, and no node has more than n aggregators. Returns the smallest n with
// which every domain gets an aggregator, or 0 if no n is large enough.
std::uint32_t spread(std::span<const std::uint32_t> limits, std::size_t domains) {
  std::vector<std::uint32_t> sorted(limits.begin(), limits.end());
  std::sort(sorted.begin(), sorted.end());
  std::uint64_t below = 0;  // the number of places on the first i nodes of `sorted`
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::size_t nodes = sorted.size() - i;
    if (below + nodes * std::uint64_t{sorted[i]} >= domains)
      return static_cast<std::uint32_t>((domains - below + nodes - 1) / nodes);
    below += sorted[i];
  }
  return 0;
}

// Throws InputError if the machine has no room for `domains` aggregators.
Capacity find_capacity(const Machine &machine, std::span<const std::uint32_t> ranks_on_node, std::size_t domains,
                       const PlacementOptions &options) {
  check_options(machine, options);
  if (domains > machine.node_of_rank.size())
    throw InputError(std::to_string(domains) + " aggregators of " + std::to_string(machine.node_of_rank.size()) +
                     " ranks: a rank can be the aggregator of one domain only");
  Capacity capacity;
  capacity.slots = find_slots(machine, options);
  const std::size_t tiers = machine.tiers.size();
  std::vector<std::uint32_t> limits(machine.nodes());
  std::uint64_t available = 0;
  for (std::size_t node = 0; node < limits.size(); ++node) {
    std::uint64_t slots = 0;
    for (std::size_t tier = 0; tier < tiers; ++tier) slots += capacity.slots[node * tiers + tier];
    limits[node] = static_cast<std::uint32_t>(std::min<std::uint64_t>(ranks_on_node[node], slots));
    if (!options.max_on_node.empty()) limits[node] = std::min(limits[node], options.max_on_node[node]);
    available += limits[node];
  }
  if (available < domains)
    throw InputError("buffers of " + std::to_string(options.buffers) + " x " + format_bytes(options.buffer_bytes) +
                     " for each of " + std::to_string(domains) + " aggregators: there is room for " +
                     std::to_string(available) +
                     " of them on the nodes that may be used; give smaller buffers or fewer " + "aggregators");
  capacity.max_on_node = std::max(1U, spread(limits, domains));
  for (std::uint32_t &limit : limits) limit = std::min(limit, capacity.max_on_node);
  capacity.columns.group_room = std::move(limits);
  add_columns(capacity, machine);
  return capacity;
}

// --- choosing --------------------------------------------------------------------------------------------------------

// The maximum number of steps of assign(). In one step, assign() tests one column. MAX_STEPS steps take some seconds.
// For D domains and C columns, assign() needs at most D * D * C steps.
constexpr double MAX_STEPS = 4e10;

// The costs of each domain on each tier of each node.
struct Candidates {
  const Machine &machine;
  const DomainCosts &work;
  const Capacity &capacity;
  Contention contention;
  std::span<const double> distances;  // a table with a value for each domain and node: a result of distances_gathered()

  Gathering gathering(std::size_t domain, std::uint32_t node) const {
    return work.gathering(domain, node, distances[domain * machine.nodes() + node]);
  }

  Cost cost(std::size_t domain, std::size_t column) const {
    const std::uint32_t node = capacity.columns.group[column];
    return work.cost(domain, node, gathering(domain, node), machine.tiers[capacity.tier[column]], contention);
  }

  std::vector<double> costs() const {
    std::vector<double> result;
    result.reserve(work.domains() * capacity.columns.group.size());
    for (std::size_t domain = 0; domain < work.domains(); ++domain)
      for (std::size_t column = 0; column < capacity.columns.group.size(); ++column)
        result.push_back(cost(domain, column).total());
    return result;
  }
};

// Returns the rank that becomes the aggregator of a domain on the node `node`. Chooses the rank with the most bytes of
// the domain, among the ranks of the node that are not yet aggregators. If several ranks have equally many bytes,
// chooses the lowest rank.
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

Choice make_choice(std::size_t domain, std::uint32_t rank, std::uint32_t tier, const DomainCosts &work,
                   const Machine &machine, std::span<const Tally> sorted, const Contention &contention,
                   const Gathering &gathering) {
  Choice choice;
  choice.rank = rank;
  choice.chosen = {machine.node_of_rank[rank], tier, {}};
  choice.gathering = gathering;
  choice.buffering = work.buffering(domain);
  choice.bytes = work.bytes(domain);
  choice.node_bytes = gathering.local_bytes;
  for (const Tally &tally : tallies_of(sorted, domain))
    if (tally.rank == rank) choice.rank_bytes = tally.bytes;
  for (std::uint32_t one = 0; one < machine.tiers.size(); ++one) {
    const Cost cost = work.cost(domain, choice.chosen.node, gathering, machine.tiers[one], contention);
    choice.tiers.push_back({choice.chosen.node, one, cost});
  }
  choice.chosen.cost = choice.tiers[tier].cost;
  return choice;
}

// Compares each chosen place with other places, and stores the reason why each other place was not chosen.
class Verdicts {
 public:
  Verdicts(const Machine &machine, const PlacementOptions &options, const Capacity &capacity,
           const std::vector<Choice> &choices)
      : machine_(machine),
        options_(options),
        capacity_(capacity),
        on_node_(machine.nodes()),
        on_tier_(capacity.slots.size()) {
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
      if (verdict == Verdict::too_volatile || verdict == Verdict::not_requested) continue;
      if (option.cost.total() < choice.tiers[choice.wanted_tier].cost.total()) choice.wanted_tier = option.tier;
    }
  }

  void find_runner_up(Choice &choice, std::size_t domain, const Candidates &candidates,
                      std::span<const double> costs) const {
    std::size_t best = costs.size();
    for (std::size_t column = 0; column < costs.size(); ++column)
      if (capacity_.columns.group[column] != choice.chosen.node &&
          (best == costs.size() || costs[column] < costs[best]))
        best = column;
    if (best == costs.size()) return;
    const std::uint32_t node = capacity_.columns.group[best];
    choice.runner_up = {node, capacity_.tier[best], candidates.cost(domain, best)};
    choice.runner_up_taken = on_node_[node] == capacity_.columns.group_room[node] || is_taken(*choice.runner_up);
  }

 private:
  std::size_t index(const Option &option) const { return option.node * machine_.tiers.size() + option.tier; }
  bool is_taken(const Option &option) const { return on_tier_[index(option)] == capacity_.slots[index(option)]; }

  Verdict of(const Option &option, const Option &chosen) const {
    if (option.tier == chosen.tier) return Verdict::chosen;
    const Verdict verdict = filtered(machine_.tiers[option.tier], options_);
    if (verdict != Verdict::chosen) return verdict;
    if (capacity_.slots[index(option)] == 0) return Verdict::no_room;
    return is_taken(option) && option.cost.total() < chosen.cost.total() ? Verdict::taken : Verdict::dearer;
  }

  const Machine &machine_;
  const PlacementOptions &options_;
  const Capacity &capacity_;
  std::vector<std::uint32_t> on_node_, on_tier_;
};

void find_slowest(Placement &placement) {
  if (placement.choices.empty()) return;
  const auto seconds = [](const Choice &choice) { return choice.chosen.cost.total(); };
  const auto slowest = std::ranges::max_element(placement.choices, {}, seconds);
  placement.slowest = static_cast<std::size_t>(slowest - placement.choices.begin());
  placement.seconds = seconds(*slowest);
}

// Adds a note for each tier that the options exclude. Also adds a note if a choice costs more than another place only
// because other aggregators use the cheaper place.
void add_notes(Placement &placement, const Machine &machine, const PlacementOptions &options) {
  for (const Tier &tier : machine.tiers)
    if (filtered(tier, options) == Verdict::too_volatile)
      placement.notes.push_back(tier.name + " is left out: its persistence is lower than requested");
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> instead;
  std::size_t displaced = 0;
  double max_lost = 0;
  for (const Choice &choice : placement.choices) {
    if (choice.wanted_tier != choice.chosen.tier) ++instead[{choice.wanted_tier, choice.chosen.tier}];
    if (!choice.runner_up || !choice.runner_up_taken) continue;
    const double lost = choice.chosen.cost.total() - choice.runner_up->cost.total();
    max_lost = std::max(max_lost, lost);
    displaced += lost > 0;
  }
  const std::string all = " of " + std::to_string(placement.choices.size()) + " aggregators ";
  for (const auto &[tiers, count] : instead) {
    const std::string &wanted = machine.tiers[tiers.first].name, &got = machine.tiers[tiers.second].name;
    placement.notes.push_back(std::to_string(count) + all + "have their buffers in " + got + " instead of " + wanted +
                              ", which has no room left for " + std::to_string(options.buffers) + " x " +
                              format_bytes(options.buffer_bytes) + " on their nodes");
  }
  if (displaced > 0)
    placement.notes.push_back(std::to_string(displaced) + all +
                              "are not on the cheapest node for their domain, because other aggregators use all places "
                              "there: " +
                              format_seconds(max_lost) + " longer at most");
}

// Merges each group of `together` neighbouring domains into one domain.
std::vector<Tally> merge_domains(std::span<const Tally> tallies, std::uint32_t together) {
  std::vector<Tally> merged(tallies.begin(), tallies.end());
  for (Tally &tally : merged) tally.domain /= together;
  return sorted_tallies(merged);
}

// The inputs of one placement. place_best() tries several placements.
struct Attempt {
  Attempt(const Machine &machine, std::vector<Tally> tallies, std::size_t domains, const PlacementOptions &options,
          std::uint32_t domains_together)
      : sorted(std::move(tallies)), together(domains_together), work(machine, sorted, domains, options) {}

  std::vector<Tally> sorted;
  std::uint32_t together;
  DomainCosts work;
};

Placement place_attempt(const Machine &machine, const Attempt &attempt, std::span<const double> distances) {
  const DomainCosts &work = attempt.work;
  const PlacementOptions &options = work.options();
  const std::size_t domains = work.domains();
  std::vector<std::uint32_t> ranks_on_node(machine.nodes());
  for (const std::uint32_t node : machine.node_of_rank) ++ranks_on_node[node];
  const Capacity capacity = find_capacity(machine, ranks_on_node, domains, options);
  Placement placement;
  placement.merged = options.merged;
  placement.together = attempt.together;
  placement.contention = {capacity.max_on_node, static_cast<std::uint32_t>(std::max<std::size_t>(1, domains))};
  const Candidates candidates{machine, work, capacity, placement.contention, distances};
  const std::vector<double> costs = candidates.costs();
  if (!std::ranges::all_of(costs, [](double seconds) { return std::isfinite(seconds); }))
    throw InputError(
        "the predicted time of aggregators is not a finite number; check the latencies and rates of the machine");
  placement.is_least = static_cast<double>(domains) * static_cast<double>(costs.size()) <= MAX_STEPS;
  const std::vector<std::uint32_t> column_of =
      placement.is_least ? assign(domains, capacity.columns, costs) : assign_in_turn(domains, capacity.columns, costs);
  std::vector<char> is_taken(machine.node_of_rank.size());
  for (std::size_t domain = 0; domain < domains; ++domain) {
    const std::uint32_t node = capacity.columns.group[column_of[domain]];
    const std::uint32_t rank = rank_on(node, tallies_of(attempt.sorted, domain), machine, is_taken);
    placement.choices.push_back(make_choice(domain, rank, capacity.tier[column_of[domain]], work, machine,
                                            attempt.sorted, placement.contention, candidates.gathering(domain, node)));
  }
  const Verdicts verdicts(machine, options, capacity, placement.choices);
  const std::size_t columns = capacity.columns.group.size();
  for (std::size_t domain = 0; domain < domains; ++domain) {
    verdicts.judge_tiers(placement.choices[domain]);
    verdicts.find_runner_up(placement.choices[domain], domain, candidates,
                            std::span(costs).subspan(domain * columns, columns));
  }
  find_slowest(placement);
  add_notes(placement, machine, options);
  return placement;
}

}  // namespace

Placement place(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                const PlacementOptions &options) {
  const Attempt attempt(machine, sorted_tallies(tallies), domains, options, 1);
  const NodeTallies *const all[] = {&attempt.work.tallies()};
  return place_attempt(machine, attempt, distances_gathered(all, machine.nodes(), machine.distances).front());
}

Placement place_best(const Machine &machine, std::span<const Tally> tallies, std::size_t domains,
                     const PlacementOptions &options, bool try_both) {
  const std::vector<Tally> sorted = sorted_tallies(tallies);
  // with one rank on each node, common messages and separate messages are the same
  const bool is_alone = machine.nodes() == machine.node_of_rank.size();
  // in a deque, the elements keep their addresses
  std::deque<Attempt> all;
  std::vector<const NodeTallies *> all_tallies;
  for (std::uint32_t together = 1; together == 1 || domains > together / 2; together *= 2) {
    const std::size_t count = (domains + together - 1) / together;
    for (const bool merged : try_both && !is_alone ? std::vector{true, false} : std::vector{options.merged}) {
      PlacementOptions tried = options;
      tried.merged = merged;
      all.emplace_back(machine, merge_domains(sorted, together), count, tried, together);
      all_tallies.push_back(&all.back().work.tallies());
    }
  }
  const auto distances = distances_gathered(all_tallies, machine.nodes(), machine.distances);
  std::optional<Placement> best;
  std::optional<InputError> refused;
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {
      Placement placement = place_attempt(machine, all[i], distances[i]);
      if (!best || placement.seconds <= best->seconds) best = std::move(placement);
    } catch (const InputError &error) {
      refused = error;  // there may be room for a smaller number of aggregators
    }
  }
  if (!best) throw InputError(*refused);
  return *std::move(best);
}

Placement predict(const Machine &machine, std::span<const Tally> tallies, const PlacementOptions &options,
                  std::span<const std::uint32_t> ranks, std::span<const std::uint32_t> tiers) {
  assert(ranks.size() == tiers.size());
  const std::vector<Tally> sorted = sorted_tallies(tallies);
  const DomainCosts work(machine, sorted, ranks.size(), options);
  std::vector<std::uint32_t> on_node(machine.nodes()), nodes;
  Placement placement;
  for (const std::uint32_t rank : ranks) {
    nodes.push_back(machine.node_of_rank[rank]);
    placement.contention.on_node = std::max(placement.contention.on_node, ++on_node[nodes.back()]);
  }
  placement.contention.in_all = static_cast<std::uint32_t>(std::max<std::size_t>(1, ranks.size()));
  placement.merged = options.merged;
  placement.is_least = false;
  const std::vector<double> distances =
      distances_gathered_at(work.tallies(), machine.nodes(), machine.distances, nodes);
  for (std::size_t domain = 0; domain < ranks.size(); ++domain) {
    const Gathering gathering = work.gathering(domain, nodes[domain], distances[domain]);
    placement.choices.push_back(
        make_choice(domain, ranks[domain], tiers[domain], work, machine, sorted, placement.contention, gathering));
  }
  find_slowest(placement);
  return placement;
}

double seconds_with(const Machine &machine, const Placement &placement, const Target &target, bool reading) {
  double seconds = 0;
  for (const Choice &choice : placement.choices) {
    const NodeConditions conditions{machine.network, target, machine.distance_to_target[choice.chosen.node],
                                    placement.contention};
    Tier tier = machine.tiers[choice.chosen.tier];
    if (reading) std::swap(tier.fill_bytes_per_second, tier.empty_bytes_per_second);
    seconds = std::max(seconds, cost(choice.gathering, tier, conditions, choice.buffering).total());
  }
  return seconds;
}

namespace {

// Places domains whose aggregators are given. All domains use the same tier. Among the tiers with room for all domains,
// the function chooses the tier with the shortest predicted time.
Placement place_owned(const Machine &machine, std::span<const Tally> tallies, std::span<const std::uint32_t> ranks,
                      const PlacementOptions &options) {
  std::vector<std::uint32_t> on_node(machine.nodes());
  for (const std::uint32_t rank : ranks) ++on_node[machine.node_of_rank[rank]];
  const Capacity capacity = find_capacity(machine, on_node, ranks.size(), options);
  std::optional<Placement> best;
  for (std::uint32_t tier = 0; tier < machine.tiers.size(); ++tier) {
    bool has_room = true;
    for (std::size_t node = 0; node < machine.nodes(); ++node)
      has_room = has_room && capacity.slots[node * machine.tiers.size() + tier] >= on_node[node];
    if (!has_room) continue;
    Placement placement = predict(machine, tallies, options, ranks, std::vector<std::uint32_t>(ranks.size(), tier));
    if (!best || placement.seconds < best->seconds) best = std::move(placement);
  }
  if (!best)
    throw InputError("no tier has room for " + std::to_string(options.buffers) + " x " +
                     format_bytes(options.buffer_bytes) +
                     " of each rank of a node, and each rank writes its own bytes; " +
                     "give smaller buffers, or 0 for own_run_bytes");
  return *std::move(best);
}

// Places all domains of the inputs, and does not merge domains. The function tries two placements, and returns the
// placement with the shorter time. In one placement, each rank sends its own messages. In the other placement, the
// ranks of a node send common messages.
Placement place_exactly(const Placed &placed, const ElectionInputs &inputs) {
  PlacementOptions apart = placed.options;
  apart.merged = false;
  Placement best = place(placed.machine, inputs.tallies, inputs.domains, apart);
  if (!inputs.can_merge || placed.machine.nodes() == placed.machine.node_of_rank.size()) return best;
  PlacementOptions together = placed.options;
  together.merged = true;
  Placement merged = place(placed.machine, inputs.tallies, inputs.domains, together);
  return merged.seconds < best.seconds ? merged : best;
}

}  // namespace

Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly) {
  return [placed = std::move(placed), exactly](const ElectionInputs &inputs) {
    placed->options.buffer_bytes = inputs.buffer_bytes;
    placed->options.buffers = inputs.buffers;
    placed->options.merged = false;
    const std::vector<std::uint32_t> owners(inputs.owners.begin(), inputs.owners.end());
    if (!owners.empty())
      placed->placement = place_owned(placed->machine, inputs.tallies, owners, placed->options);
    else
      placed->placement =
          exactly ? place_exactly(*placed, inputs)
                  : place_best(placed->machine, inputs.tallies, inputs.domains, placed->options, inputs.can_merge);
    Election election{{}, placed->placement.together, {}, placed->placement.merged};
    for (const Choice &choice : placed->placement.choices) {
      election.aggregators.push_back(static_cast<int>(choice.rank));
      election.tiers.push_back(choice.chosen.tier);
    }
    return election;
  };
}

}  // namespace outcrop::aggregate
