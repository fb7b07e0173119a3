// These tests check that a plan uses the aggregators of the election, even if the election has merged domains.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr int ranks_in_all = 8, ranks_on_node = 2;

// Returns the declaration of one rank. Rank r has the blocks with the numbers r, r + 8, r + 16, and so on. A rank has
// 32 blocks of 64 KiB, which are 2 MiB in total.
Declaration interleaved(int rank) {
  const std::uint64_t block = 64 << 10;
  return {{{strided(static_cast<std::uint64_t>(rank) * block, 32, block, ranks_in_all * block)}}};
}

void write_and_compare(const PlanOptions &options, const std::function<void(const PlanSummary &)> &look) {
  const Folder folder;
  ThreadRanks ranks(ranks_in_all, ranks_on_node);
  on_ranks(ranks, ranks_in_all, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, interleaved(rank), options);
    if (rank == 0) look(plan.summary());
    std::vector<std::byte> memory(2 * mib, static_cast<std::byte>(rank + 1));
    const std::vector<std::span<const std::byte>> spans{memory};
    File file = File::create(plan, folder.file("out"));
    const Timing timing = file.write(spans);
    EXPECT_GE(timing.seconds_filling, timing.seconds_copying);
    file.close();
  });
  std::ifstream file(folder.file("out"), std::ios::binary);
  const std::string found((std::istreambuf_iterator<char>(file)), {});
  ASSERT_EQ(found.size(), 16 * mib);
  for (std::size_t i = 0; i < found.size(); i += 4099)
    ASSERT_EQ(found[i], static_cast<char>((i >> 16) % ranks_in_all + 1)) << "byte " << i;
}

TEST(AggregateElect, DomainsThatAnElectionJoinsAreOne) {
  PlanOptions options;
  options.aggregators_on_node = 2;
  options.buffer_bytes = mib;
  options.elect = [](const ElectionInputs &inputs) {
    EXPECT_EQ(inputs.domains, 8U);
    EXPECT_EQ(inputs.buffer_bytes, mib);
    return Election{{5, 2, 7}, 3};  // rank 5 gets domains 0 to 2, rank 2 gets 3 to 5, rank 7 gets 6 and 7
  };
  write_and_compare(options, [](const PlanSummary &summary) {
    EXPECT_EQ(summary.aggregators, (std::vector<int>{5, 2, 7}));
    EXPECT_EQ(summary.domain_bytes, (std::vector<std::uint64_t>{6 * mib, 6 * mib, 4 * mib}));
    EXPECT_EQ(summary.tallies.size(), 3U * ranks_in_all);
  });
}

std::shared_ptr<Placed> placed_on(double target_bytes_per_second) {
  auto placed = std::make_shared<Placed>();
  Machine &machine = placed->machine;
  for (int rank = 0; rank < ranks_in_all; ++rank)
    machine.node_of_rank.push_back(static_cast<std::uint32_t>(rank / ranks_on_node));
  machine.distance_to_target.assign(ranks_in_all / ranks_on_node, 1);
  machine.distances = [](std::size_t node, std::span<double> row) {
    std::ranges::fill(row, 1);
    row[node] = 0;
  };
  machine.network = {1e-6, 1e9, 1};
  machine.target = {0, target_bytes_per_second, true};
  machine.tiers = {{"dram", 1e-7, 9e10, 9e10, Persistence::process}};
  machine.room_bytes.assign(ranks_in_all / ranks_on_node, std::uint64_t{1} << 30);
  return placed;
}

TEST(AggregateElect, TheCostModelPlacesAPlansDomains) {
  const std::shared_ptr<Placed> placed = placed_on(UNLIMITED);
  PlanOptions options;
  options.aggregators = 4;
  // The ranks are threads of one process. Each rank has its own object for the result. Otherwise the ranks would write
  // to the same object.
  options.elect = [&](const ElectionInputs &inputs) {
    const auto own = std::make_shared<Placed>(*placed);
    const Election election = elect_by_cost(own, true)(inputs);
    EXPECT_EQ(own->options.buffer_bytes, inputs.buffer_bytes);
    EXPECT_EQ(own->placement.choices.size(), 4U);
    EXPECT_GT(own->placement.seconds, 0);
    EXPECT_TRUE(own->placement.merged) << "messages take their time, memory of a node none";
    EXPECT_TRUE(election.merged);
    return election;
  };
  write_and_compare(options, [](const PlanSummary &summary) {
    std::set<int> nodes;
    for (const int rank : summary.aggregators) nodes.insert(rank / ranks_on_node);
    EXPECT_EQ(nodes.size(), 4U) << "one card each";
  });
}

// The number of messages that all ranks together send in a step. Messages that report success or failure of the step
// are not counted.
std::atomic<int> sent = 0;
decltype(outcrop_transport::send) send_as_before = nullptr;

int messages_of_a_step(int aggregators, bool merged, bool reading) {
  PlanOptions options{.buffer_bytes = mib, .aggregators = static_cast<std::uint32_t>(aggregators)};
  options.elect = [&](const ElectionInputs &inputs) {
    Election election = elect_by_bytes(inputs);
    election.merged = merged;
    return election;
  };
  const Folder folder;
  ThreadRanks ranks(ranks_in_all, ranks_on_node);
  send_as_before = ranks.transport(0).send;
  sent = 0;
  on_ranks(ranks, ranks_in_all, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, interleaved(rank), options);
    std::vector<std::byte> memory(2 * mib, std::byte{1});
    File file = File::create(plan, folder.file("out"), {.size_bytes = 16 * mib});
    Link(transport).barrier();
    transport.send = [](void *self, const void *data, size_t bytes, int to, int tag, outcrop_request *request) {
      if (tag < 16384) ++sent;  // messages about success or failure have higher tags
      return send_as_before(self, data, bytes, to, tag, request);
    };
    if (reading)
      file.read(std::vector<std::span<std::byte>>{memory});
    else
      file.write(std::vector<std::span<const std::byte>>{memory});
    transport.send = send_as_before;
    file.close();
  });
  return sent;
}

TEST(AggregateElect, RanksOfANodeSendOneMessageForARoundWhereThatIsElected) {
  constexpr int rounds = 16, nodes = ranks_in_all / ranks_on_node;
  for (const bool reading : {false, true}) {
    EXPECT_EQ(messages_of_a_step(1, false, reading), rounds * (nodes - 1) * ranks_on_node);
    EXPECT_EQ(messages_of_a_step(1, true, reading), rounds * (nodes - 1));
    EXPECT_EQ(messages_of_a_step(4, true, reading), rounds * (nodes - 1)) << "rounds of all domains together";
  }
}

TEST(AggregateElect, RanksSendForThemselvesWhereThatIsSooner) {
  const std::shared_ptr<Placed> placed = placed_on(1e9);
  placed->machine.shared_memory = {1e-3, 1e6};
  std::vector<Tally> tallies;
  for (std::uint32_t rank = 0; rank < ranks_in_all; ++rank) tallies.push_back({0, rank, mib / 4});
  const std::vector<int> nodes = {0, 0, 2, 2, 4, 4, 6, 6};
  for (const bool exactly : {false, true}) {
    EXPECT_FALSE(elect_by_cost(placed, exactly)({1, tallies, nodes, mib, 2, true, {}}).merged);
    placed->machine.shared_memory = {};
    EXPECT_TRUE(elect_by_cost(placed, exactly)({1, tallies, nodes, mib, 2, true, {}}).merged);
    EXPECT_FALSE(elect_by_cost(placed, exactly)({1, tallies, nodes, mib, 2, false, {}}).merged) << "not allowed";
    placed->machine.shared_memory = {1e-3, 1e6};
  }
}

TEST(AggregateElect, WhatFindsNoRoomIsRefusedOnAllRanks) {
  ThreadRanks ranks(ranks_in_all, ranks_on_node);
  std::atomic<int> refused = 0;
  on_ranks(ranks, ranks_in_all, [&](int rank, outcrop_transport &transport) {
    const std::shared_ptr<Placed> placed = placed_on(1e9);
    placed->machine.room_bytes.assign(4, 4096);
    PlanOptions options;
    options.elect = elect_by_cost(placed, false);
    try {
      Plan::make(transport, interleaved(rank), options);
    } catch (const InputError &error) {
      EXPECT_NE(std::string(error.what()).find("room"), std::string::npos) << error.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused, ranks_in_all);
}

}  // namespace
}  // namespace outcrop::aggregate
