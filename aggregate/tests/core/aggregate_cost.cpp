// These tests compare the cost model of aggregation with the published figures. They also check our extensions of the
// model.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "outcrop/aggregate/placement/cost.hpp"

namespace outcrop::aggregate {
namespace {

constexpr double GIGABYTE = 1024.0 * 1024 * 1024;  // the unit of time in the paper
constexpr std::uint64_t MEGABYTE = 1024 * 1024;

const std::vector<Tier> TIERS = {{"hbm", 0.010, 180 * GIGABYTE, UNLIMITED, Persistence::process},
                                 {"dram", 0.020, 90 * GIGABYTE, UNLIMITED, Persistence::process},
                                 {"nvr", 0.100, 0.15 * GIGABYTE, UNLIMITED, Persistence::job}};

NodeConditions surroundings(double distance_to_target = 1) {
  NodeConditions around;
  around.network = {0.030, 12.5 * GIGABYTE, 1};
  around.distance_to_target = distance_to_target;
  return around;
}

Gathering gathering(double distance, std::uint64_t remote_bytes, std::uint64_t local_bytes) {
  Gathering result;
  result.distance = distance;
  result.remote_bytes = remote_bytes;
  result.local_bytes = local_bytes;
  return result;
}

TEST(AggregateCost, IsThatOfThePublishedTable) {
  const double megabytes[] = {10, 50, 20, 5};
  const double distances[] = {16, 13, 19, 14};
  const double to_target[] = {3, 2, 5, 2};
  const double expected[4][3] = {
      {0.593, 0.603, 2.350}, {0.470, 0.480, 2.020}, {0.742, 0.752, 2.710}, {0.503, 0.513, 2.120}};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto own = static_cast<std::uint64_t>(megabytes[rank]) * MEGABYTE;
    const Gathering all = gathering(distances[rank], 85 * MEGABYTE - own, own);
    for (std::size_t tier = 0; tier < 3; ++tier) {
      const double seconds = cost(all, TIERS[tier], surroundings(to_target[rank])).total();
      EXPECT_EQ(std::lround(seconds * 1000), std::lround(expected[rank][tier] * 1000)) << rank << " " << tier;
    }
  }
}

TEST(AggregateCost, OverlapHidesTheShorterOfFillingAndEmptying) {
  const Gathering all = gathering(16, 75 * MEGABYTE, 10 * MEGABYTE);
  const NodeConditions around = surroundings(3);
  const Cost alone = cost(all, TIERS[0], around, {10, 1});
  const Cost both = cost(all, TIERS[0], around, {10, 2});
  EXPECT_EQ(alone.hidden, 0);
  EXPECT_NEAR(both.hidden, 0.9 * std::min(alone.fill(), alone.empty()), 1e-12);
  EXPECT_NEAR(both.total(), (both.fill() + both.empty()) / 10 + std::max(both.fill(), both.empty()) * 0.9, 1e-12);
}

TEST(AggregateCost, AggregatorsOfANodeShareItsCardsAndTiers) {
  const Gathering all = gathering(0, 100 * MEGABYTE, 0);
  NodeConditions around = surroundings(0);
  const auto transfer = [&](std::uint32_t cards, std::uint32_t on_node) {
    around.network.cards_on_node = cards;
    around.contention.on_node = on_node;
    return cost(all, TIERS[0], around).transfer;
  };
  const double alone = transfer(1, 1);
  EXPECT_DOUBLE_EQ(transfer(8, 1), alone);      // one aggregator uses only one card
  EXPECT_DOUBLE_EQ(transfer(8, 8), alone);      // each aggregator has its own card
  EXPECT_DOUBLE_EQ(transfer(1, 8), alone * 8);  // all aggregators share one card
  EXPECT_DOUBLE_EQ(transfer(64, 64),
                   // the tier limits the rate, because it is slower than 64 cards
                   100.0 * MEGABYTE / (180 * GIGABYTE / 64));
}

TEST(AggregateCost, TargetIsSharedByAllOrByThoseOfANode) {
  const Gathering all = gathering(0, 50 * MEGABYTE, 50 * MEGABYTE);
  NodeConditions around = surroundings(2);
  around.contention = {4, 100};
  around.target = {0.001, 10 * GIGABYTE, true};
  const Cost shared = cost(all, TIERS[0], around);
  EXPECT_DOUBLE_EQ(shared.target_transfer, 100.0 * MEGABYTE / (10 * GIGABYTE / 100));
  EXPECT_DOUBLE_EQ(shared.target_latency, 0.001 + 0.030 * 2);
  around.target.is_shared = false;
  const Cost local = cost(all, TIERS[0], around);
  EXPECT_DOUBLE_EQ(local.target_transfer, 100.0 * MEGABYTE / (10 * GIGABYTE / 4));
  EXPECT_DOUBLE_EQ(local.target_latency, 0.001);  // a local target is reached without the network
}

TEST(AggregateCost, PuttingBytesTogetherTakesSeveralRanks) {
  const SharedMemory memory{0.001, GIGABYTE};
  EXPECT_EQ(seconds_merge(memory, 1, 64 * MEGABYTE), 0);
  EXPECT_DOUBLE_EQ(seconds_merge(memory, 4, 64 * MEGABYTE), 0.004 + 64.0 / 1024);
}

}  // namespace
}  // namespace outcrop::aggregate
