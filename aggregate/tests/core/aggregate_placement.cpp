// These tests check three properties of placements. There must be no better placement than the chosen placement. No
// placement must use a tier with too little room or persistence. The explanations are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr double GIGABYTE = 1024.0 * 1024 * 1024;
constexpr std::uint64_t MEGABYTE = 1024 * 1024;

// Returns the machine of the table in the paper about MA-TAPIOCA. Each rank of this machine is on its own node.
Machine published() {
  static const double distances[4][4] = {{0, 4, 7, 5}, {4, 0, 6, 3}, {7, 6, 0, 6}, {5, 3, 6, 0}};
  Machine machine;
  machine.node_of_rank = {0, 1, 2, 3};
  machine.distance_to_target = {3, 2, 5, 2};
  machine.distances = [](std::size_t node, std::span<double> row) {
    std::copy(distances[node], distances[node] + 4, row.begin());
  };
  machine.network = {0.030, 12.5 * GIGABYTE, 1};
  machine.tiers = {{"hbm", 0.010, 180 * GIGABYTE, UNLIMITED, Persistence::process},
                   {"dram", 0.020, 90 * GIGABYTE, UNLIMITED, Persistence::process},
                   {"nvr", 0.100, 0.15 * GIGABYTE, UNLIMITED, Persistence::job}};
  for (int node = 0; node < 4; ++node)
    for (const std::uint64_t gigabytes : {16, 192, 128}) machine.room_bytes.push_back(gigabytes << 30);
  return machine;
}

const std::vector<Tally> PUBLISHED_BYTES = {
    {0, 0, 10 * MEGABYTE}, {0, 1, 50 * MEGABYTE}, {0, 2, 20 * MEGABYTE}, {0, 3, 5 * MEGABYTE}};

PlacementOptions options() {
  PlacementOptions result;
  result.buffer_bytes = 128 * MEGABYTE;
  result.merged = false;
  return result;
}

TEST(AggregatePlacement, TakesTheLeastOfThePublishedTable) {
  const Placement placement = place(published(), PUBLISHED_BYTES, 1, options());
  ASSERT_EQ(placement.choices.size(), 1U);
  const Choice &choice = placement.choices[0];
  EXPECT_EQ(choice.rank, 1U);
  EXPECT_EQ(choice.chosen.tier, 0U);
  EXPECT_NEAR(placement.seconds, 0.470, 0.0005);
  EXPECT_NEAR(choice.tiers[1].cost.total(), 0.480, 0.0005);
  EXPECT_NEAR(choice.tiers[2].cost.total(), 2.020, 0.0005);
  EXPECT_EQ(choice.runner_up->node, 3U);
  EXPECT_NEAR(choice.runner_up->cost.total(), 0.503, 0.0005);
  EXPECT_TRUE(placement.notes.empty());
}

void cap(Machine &machine, std::size_t tier, std::uint64_t bytes) {
  for (std::size_t node = 0; node < machine.nodes(); ++node)
    machine.room_bytes[node * machine.tiers.size() + tier] = bytes;
}

TEST(AggregatePlacement, GoesDownTheLadderOfCapacities) {
  Machine machine = published();
  cap(machine, 0, 255 * MEGABYTE);  // two buffers of 128 MiB do not fit into the tier
  Placement placement = place(machine, PUBLISHED_BYTES, 1, options());
  EXPECT_EQ(machine.tiers[placement.choices[0].chosen.tier].name, "dram");
  ASSERT_EQ(placement.notes.size(), 1U);
  EXPECT_EQ(
      placement.notes[0],
      "1 of 1 aggregators have their buffers in dram instead of hbm, which has no room left for 2 x 128 MiB on their "
      "nodes");
  cap(machine, 1, 0);
  placement = place(machine, PUBLISHED_BYTES, 1, options());
  EXPECT_EQ(machine.tiers[placement.choices[0].chosen.tier].name, "nvr");
  EXPECT_NE(explain(placement, machine, options()).find("hbm there: 469.6 ms, 1.55 s less, but it has no room"),
            std::string::npos)
      << explain(placement, machine, options());
  cap(machine, 2, 256 * MEGABYTE - 1);
  EXPECT_THROW(place(machine, PUBLISHED_BYTES, 1, options()), InputError);
}

TEST(AggregatePlacement, PersistenceIsAFilterAndATierCanBeAskedFor) {
  const Machine machine = published();
  PlacementOptions job = options();
  job.persistence = Persistence::job;
  const Placement lasting = place(machine, PUBLISHED_BYTES, 1, job);
  EXPECT_EQ(lasting.choices[0].chosen.tier, 2U);
  EXPECT_EQ(lasting.choices[0].verdicts[0], Verdict::too_volatile);
  EXPECT_EQ(lasting.notes.size(), 2U);
  PlacementOptions dram = options();
  dram.tier = "dram";
  const Placement asked = place(machine, PUBLISHED_BYTES, 1, dram);
  EXPECT_EQ(asked.choices[0].chosen.tier, 1U);
  EXPECT_EQ(asked.choices[0].rank, 1U);  // there is only one tier, so only the topology decides
  EXPECT_EQ(asked.choices[0].verdicts[0], Verdict::not_requested);
  dram.tier = "flash";
  EXPECT_THROW(place(machine, PUBLISHED_BYTES, 1, dram), InputError);
  job.persistence = Persistence::permanent;
  EXPECT_THROW(place(machine, PUBLISHED_BYTES, 1, job), InputError);
}

struct Instance {
  Machine machine;
  std::vector<Tally> tallies;
  std::size_t domains = 1;
  PlacementOptions options;
};

double any(std::mt19937 &random, double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(random);
}

// Returns a random machine and tallies. The machine has up to 4 nodes, up to 3 ranks on each node, 2 tiers and random
// distances. The faster tier often lacks room.
Instance random_instance(std::mt19937 &random) {
  Instance one;
  const auto below = [&](unsigned limit) { return static_cast<std::uint32_t>(random() % limit); };
  const std::uint32_t nodes = 1 + below(4);
  for (std::uint32_t node = 0; node < nodes; ++node)
    for (std::uint32_t rank = 1 + below(3); rank > 0; --rank) one.machine.node_of_rank.push_back(node);
  std::shuffle(one.machine.node_of_rank.begin(), one.machine.node_of_rank.end(), random);
  std::vector<double> table(std::size_t{nodes} * nodes);
  for (std::uint32_t from = 0; from < nodes; ++from) {
    one.machine.distance_to_target.push_back(any(random, 1, 5));
    for (std::uint32_t to = 0; to < nodes; ++to) table[from * nodes + to] = from == to ? 0 : any(random, 1, 5);
    one.machine.room_bytes.push_back(below(3) * 2 * 16 * MEGABYTE);
    one.machine.room_bytes.push_back(std::uint64_t{64} << 30);
  }
  one.machine.distances = [table, nodes](std::size_t node, std::span<double> row) {
    std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(node * nodes), nodes, row.begin());
  };
  one.machine.network = {any(random, 1e-6, 1e-3), 1e10, 1 + below(2)};
  one.machine.target = {1e-4, 5e10, below(2) == 0};
  one.machine.shared_memory = {1e-6, 1e10};
  one.machine.tiers = {{"fast", 1e-6, 1e11, 1e11, Persistence::process},
                       {"slow", 1e-5, any(random, 1e9, 2e10), 5e9, Persistence::process}};
  one.domains = 1 + below(std::min<std::uint32_t>(4, static_cast<std::uint32_t>(one.machine.node_of_rank.size())));
  for (std::uint32_t domain = 0; domain < one.domains; ++domain)
    for (std::uint32_t rank = 0; rank < one.machine.node_of_rank.size(); ++rank)
      one.tallies.push_back({domain, rank, below(4) * 10 * MEGABYTE});
  one.options.merged = below(2) == 0;
  return one;
}

// Returns the minimum cost over all placements that keep three rules. The rules for placements are: each tier has
// enough room, a rank has at most one domain, and the aggregators are spread evenly over the nodes.
class Everything {
 public:
  Everything(const Instance &one, std::uint32_t max_on_node)
      : one_(one),
        most_(max_on_node),
        sorted_(sorted_tallies(one.tallies)),
        work_(one.machine, sorted_, one.domains, one.options),
        contention_{max_on_node, static_cast<std::uint32_t>(one.domains)},
        distances_(gathered(work_.tallies(), one.machine)),
        room_(one.machine.room_bytes),
        on_node_(one.machine.nodes()),
        is_taken_(one.machine.node_of_rank.size()) {}

  double least(std::size_t domain = 0) {
    if (domain == one_.domains) return 0;
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t rank = 0; rank < is_taken_.size(); ++rank)
      for (std::size_t tier = 0; tier < 2; ++tier) best = std::min(best, with(domain, rank, tier));
    return best;
  }

 private:
  static std::vector<double> gathered(const NodeTallies &tallies, const Machine &machine) {
    const NodeTallies *const all[] = {&tallies};
    return distances_gathered(all, machine.nodes(), machine.distances).front();
  }

  double with(std::size_t domain, std::size_t rank, std::size_t tier) {
    const std::uint32_t node = one_.machine.node_of_rank[rank];
    const std::uint64_t needed = one_.options.buffer_bytes * one_.options.buffers;
    if (is_taken_[rank] || on_node_[node] == most_ || room_[node * 2 + tier] < needed)
      return std::numeric_limits<double>::infinity();
    const Gathering gathering = work_.gathering(domain, node, distances_[domain * one_.machine.nodes() + node]);
    const double own = work_.cost(domain, node, gathering, one_.machine.tiers[tier], contention_).total();
    is_taken_[rank] = true;
    ++on_node_[node];
    room_[node * 2 + tier] -= needed;
    const double rest = least(domain + 1);
    is_taken_[rank] = false;
    --on_node_[node];
    room_[node * 2 + tier] += needed;
    return own + rest;
  }

  const Instance &one_;
  std::uint32_t most_;
  std::vector<Tally> sorted_;
  DomainCosts work_;
  Contention contention_;
  std::vector<double> distances_;
  std::vector<std::uint64_t> room_;
  std::vector<std::uint32_t> on_node_;
  std::vector<char> is_taken_;
};

TEST(AggregatePlacement, IsTheLeastThatTryingEverythingFinds) {
  std::mt19937 random(11);
  int with_fallback = 0;
  for (int i = 0; i < 300; ++i) {
    const Instance one = random_instance(random);
    const Placement placement = place(one.machine, one.tallies, one.domains, one.options);
    double sum = 0;
    std::set<std::uint32_t> ranks;
    for (const Choice &choice : placement.choices) {
      sum += choice.chosen.cost.total();
      ranks.insert(choice.rank);
      EXPECT_EQ(one.machine.node_of_rank[choice.rank], choice.chosen.node);
    }
    EXPECT_EQ(ranks.size(), one.domains);
    ASSERT_NEAR(sum, Everything(one, placement.contention.on_node).least(), 1e-12 * sum) << i;
    with_fallback += !placement.notes.empty();
    std::vector<std::uint32_t> chosen_ranks, chosen_tiers;
    for (const Choice &choice : placement.choices) {
      chosen_ranks.push_back(choice.rank);
      chosen_tiers.push_back(choice.chosen.tier);
    }
    const Placement again = predict(one.machine, one.tallies, one.options, chosen_ranks, chosen_tiers);
    if (again.contention.on_node == placement.contention.on_node) {
      EXPECT_EQ(again.seconds, placement.seconds) << i;
    }
  }
  EXPECT_GT(with_fallback, 30);
}

TEST(AggregatePlacement, CapacityIsSharedByAggregatorsOfANode) {
  Machine machine = published();
  machine.node_of_rank = {0, 0, 0, 0};
  machine.distance_to_target = {1};
  machine.distances = [](std::size_t, std::span<double> row) { row[0] = 0; };
  machine.room_bytes = {512 * MEGABYTE, 256 * MEGABYTE, std::uint64_t{1} << 40};
  std::vector<Tally> tallies;
  for (std::uint32_t rank = 0; rank < 4; ++rank) tallies.push_back({rank, rank, MEGABYTE});
  const Placement placement = place(machine, tallies, 4, options());
  std::vector<std::size_t> counts(3);
  for (const Choice &choice : placement.choices) ++counts[choice.chosen.tier];
  EXPECT_EQ(counts, (std::vector<std::size_t>{2, 1, 1}));
  for (std::uint32_t domain = 0; domain < 4; ++domain)
    EXPECT_EQ(placement.choices[domain].rank, domain) << "the rank that has the domain's bytes gathers it";
}

TEST(AggregatePlacement, NumberOfAggregatorsFollowsTheCardsAndTheTarget) {
  Machine machine;
  for (std::uint32_t rank = 0; rank < 64; ++rank) machine.node_of_rank.push_back(rank / 16);
  machine.distance_to_target = {1, 1, 1, 1};
  machine.distances = [](std::size_t node, std::span<double> row) {
    for (std::size_t other = 0; other < row.size(); ++other) row[other] = node == other ? 0 : 1;
  };
  machine.network = {2e-6, 12.5e9, 8};
  machine.shared_memory = {1e-7, 1e10};
  machine.tiers = {{"dram", 1e-7, 400e9, 400e9, Persistence::process}};
  machine.room_bytes.assign(4, std::uint64_t{64} << 30);
  std::vector<Tally> tallies;
  for (std::uint32_t domain = 0; domain < 64; ++domain)
    for (std::uint32_t rank = 0; rank < 64; ++rank) tallies.push_back({domain, rank, 4 * MEGABYTE});
  const Placement many = place_best(machine, tallies, 64, PlacementOptions{}, true);
  EXPECT_GE(many.choices.size(), 32U) << "one for each card at least";
  machine.network.cards_on_node = 1;
  EXPECT_LT(place_best(machine, tallies, 64, PlacementOptions{}, true).choices.size(), many.choices.size());
  machine.target.bytes_per_second = 5e9;  // the target is slower than a card
  machine.network.latency_seconds = 1e-8;
  EXPECT_LE(place_best(machine, tallies, 64, PlacementOptions{}, true).choices.size(), 4U);
}

TEST(AggregatePlacement, RanksOfANodeSendTogetherWhereLatencyCosts) {
  Machine machine = published();
  machine.node_of_rank = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  machine.shared_memory = {1e-6, 1e10};
  std::vector<Tally> tallies;
  for (std::uint32_t rank = 0; rank < 16; ++rank) tallies.push_back({0, rank, MEGABYTE});
  const Placement together = place_best(machine, tallies, 1, options(), true);
  EXPECT_TRUE(together.merged);
  EXPECT_LT(together.seconds, place(machine, tallies, 1, options()).seconds / 2);
  machine.shared_memory = {1, 1e6};
  EXPECT_FALSE(place_best(machine, tallies, 1, options(), true).merged);
}

TEST(AggregatePlacement, LimitsOfNodesAreKept) {
  Machine machine = published();
  std::vector<Tally> tallies;
  for (std::uint32_t domain = 0; domain < 2; ++domain)
    for (std::uint32_t rank = 0; rank < 4; ++rank) tallies.push_back({domain, rank, MEGABYTE});
  PlacementOptions limited = options();
  limited.max_on_node = {1, 0, 1, 0};
  std::set<std::uint32_t> nodes;
  for (const Choice &choice : place(machine, tallies, 2, limited).choices) nodes.insert(choice.chosen.node);
  EXPECT_EQ(nodes, (std::set<std::uint32_t>{0, 2}));
  EXPECT_THROW(place(machine, tallies, 3, limited), InputError);
  EXPECT_THROW(place(machine, tallies, 5, options()), InputError) << "more aggregators than ranks";
}

TEST(AggregatePlacement, NodesAreNumberedInTheOrderOfTheirLowestRanks) {
  const std::vector<int> lowest = {0, 0, 2, 0, 2, 5};
  EXPECT_EQ(number_nodes(lowest), (std::vector<std::uint32_t>{0, 0, 1, 0, 1, 2}));
}

TEST(AggregatePlacement, NothingToGatherIsAPlacement) {
  const Placement placement = place(published(), {}, 0, options());
  EXPECT_TRUE(placement.choices.empty());
  EXPECT_EQ(explain(placement, published(), options()), "nothing to gather\n");
}

TEST(AggregatePlacement, TalliesInAnyOrderAndPartsGiveTheSame) {
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    const Instance one = random_instance(random);
    std::vector<Tally> shuffled = one.tallies;
    for (Tally &tally : shuffled) tally.bytes /= 2;
    const std::vector<Tally> halves = shuffled;
    shuffled.insert(shuffled.end(), halves.begin(), halves.end());
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const Placement placement = place(one.machine, one.tallies, one.domains, one.options);
    const Placement again = place(one.machine, shuffled, one.domains, one.options);
    EXPECT_EQ(explain(placement, one.machine, one.options, 9), explain(again, one.machine, one.options, 9));
  }
}

}  // namespace
}  // namespace outcrop::aggregate
