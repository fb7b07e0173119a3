// These tests check the placement of threads on cores. Every thread must have a processor. Two threads must not share a
// core while another core is free. The number of threads on a node must be in proportion to the number of its cores.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/topology.hpp"

namespace outcrop {
namespace {

using Counts = std::vector<unsigned>;

NumaNode make_node(unsigned os_index, unsigned first, unsigned cores, unsigned threads_per_core) {
  NumaNode node{os_index, cores, std::vector<unsigned>(std::size_t{cores} * threads_per_core)};
  std::iota(node.processors.begin(), node.processors.end(), first);
  return node;
}

// Returns a topology whose nodes have the given numbers of cores.
Topology machine(const Counts &cores, unsigned threads_per_core = 1) {
  Topology topology;
  unsigned first = 0;
  for (unsigned i = 0; i < cores.size(); ++i) {
    topology.nodes.push_back(make_node(10 * i, first, cores[i], threads_per_core));
    first += cores[i] * threads_per_core;
  }
  return topology;
}

std::vector<Topology> all_machines() {
  std::vector<Topology> machines;
  for (const unsigned per_core : {1u, 2u})
    for (const Counts &cores : std::vector<Counts>{
             {1}, {8}, {1, 1}, {4, 4}, {4, 2}, {1, 7}, {2, 2, 2}, {4, 4, 4, 4}, {8, 1, 3, 8}, Counts(8, 2)})
      machines.push_back(machine(cores, per_core));
  return machines;
}

TEST(Placement, EveryThreadHasAPlaceOnItsNode) {
  for (const Topology &topology : all_machines())
    for (unsigned threads = 1; threads <= 40; ++threads) {
      const ThreadPlacement placement = spread(topology, threads);
      ASSERT_EQ(placement.size(), threads);
      ASSERT_EQ(std::accumulate(placement.node_threads.begin(), placement.node_threads.end(), 0u), threads);
      ASSERT_EQ(placement.node_indices.size(), placement.node_threads.size());
      Counts seen(placement.nodes(), 0);
      for (unsigned i = 0; i < threads; ++i) {
        const ThreadPlace place = placement.threads[i];
        ++seen[place.node];
        ASSERT_TRUE(i == 0 || place.node >= placement.threads[i - 1].node) << "those of a node follow each other";
        const unsigned os_index = placement.node_indices[place.node];
        const auto &processors = topology.nodes[os_index / 10].processors;
        ASSERT_TRUE(std::find(processors.begin(), processors.end(), place.processor) != processors.end());
      }
      ASSERT_EQ(seen, placement.node_threads);
      ASSERT_TRUE(std::all_of(seen.begin(), seen.end(), [](unsigned count) { return count > 0; }));
    }
}

TEST(Placement, TakesFreeCoresBeforeHyperthreadsAndThoseBeforeSharing) {
  for (const Topology &topology : all_machines()) {
    std::size_t cores = 0, processors = 0;
    for (const NumaNode &node : topology.nodes) cores += node.cores, processors += node.processors.size();
    for (unsigned threads = 1; threads <= processors; ++threads) {
      const ThreadPlacement placement = spread(topology, threads);
      std::set<unsigned> used;
      for (const ThreadPlace &place : placement.threads) used.insert(place.processor);
      ASSERT_EQ(used.size(), threads) << "no two threads on one processor";
      if (threads > cores) continue;
      for (unsigned node = 0; node < placement.nodes(); ++node)
        ASSERT_LE(placement.node_threads[node], topology.nodes[placement.node_indices[node] / 10].cores);
    }
  }
}

TEST(Placement, SpreadsInProportionToCores) {
  EXPECT_EQ(spread(machine({4, 4}), 1).node_threads, (Counts{1}));
  EXPECT_EQ(spread(machine({4, 4}), 2).node_threads, (Counts{1, 1}));
  EXPECT_EQ(spread(machine({4, 4}), 8).node_threads, (Counts{4, 4}));
  EXPECT_EQ(spread(machine({4, 2}), 6).node_threads, (Counts{4, 2}));
  EXPECT_EQ(spread(machine({4, 2}), 3).node_threads, (Counts{2, 1}));
  EXPECT_EQ(spread(machine({1, 7}), 8).node_threads, (Counts{1, 7}));
  EXPECT_EQ(spread(machine({8, 8, 8, 8}), 16).node_threads, (Counts{4, 4, 4, 4}));
  EXPECT_EQ(spread(machine({4, 4}, 2), 12).node_threads, (Counts{6, 6}));
  EXPECT_EQ(spread(machine({2, 2}), 9).node_threads, (Counts{5, 4})) << "more threads than processors";
}

// In this test, the process may use both hardware threads of each core of node 0, but only one hardware thread of each
// core of node 1.
TEST(Placement, NoProcessorIsSharedWhileAnotherIsFree) {
  const Topology topology{{make_node(0, 0, 4, 2), make_node(1, 8, 4, 1)}, false};
  EXPECT_EQ(spread(topology, 8).node_threads, (Counts{4, 4}));
  EXPECT_EQ(spread(topology, 10).node_threads, (Counts{6, 4}));
  EXPECT_EQ(spread(topology, 12).node_threads, (Counts{8, 4}));
}

TEST(Placement, PartsAddUpAndKeepProportions) {
  for (const Counts &weights : {Counts{1}, Counts{1, 1}, Counts{3, 1}, Counts{2, 5, 1}, Counts(8, 7)})
    for (const std::size_t total : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{1} << 62}) {
      const std::vector<std::size_t> first = cut_in_proportion(total, weights);
      ASSERT_EQ(first.size(), weights.size() + 1);
      EXPECT_EQ(first.front(), 0u);
      EXPECT_EQ(first.back(), total);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (std::size_t i = 0; i < weights.size(); ++i)
        EXPECT_NEAR(static_cast<double>(first[i + 1] - first[i]), static_cast<double>(total) * weights[i] / sum,
                    1 + 1e-12 * static_cast<double>(total));
    }
}

TEST(Placement, OneNodeIsNeverBoundUnasked) {
  const ThreadPlacement placement = place_threads(3, Bind::none);
  EXPECT_FALSE(placement.bound);
  EXPECT_EQ(placement.node_threads, (Counts{3}));
  EXPECT_FALSE(placement.processor(0).has_value());
  if (!has_hwloc()) GTEST_SKIP() << "built without hwloc";
  EXPECT_EQ(place_threads(3, Bind::automatic, "numa:1 core:4 pu:1").node_threads, (Counts{3}));
  EXPECT_FALSE(place_threads(3, Bind::automatic, "numa:1 core:4 pu:1").bound);
}

TEST(Placement, SeveralNodesAreUsedUnlessForbidden) {
  if (!has_hwloc()) GTEST_SKIP() << "built without hwloc";
  const std::string two = "numa:2 core:4 pu:2";
  EXPECT_EQ(place_threads(6, Bind::automatic, two).node_threads, (Counts{3, 3}));
  EXPECT_FALSE(place_threads(6, Bind::automatic, two).bound) << "made-up nodes cannot be bound to";
  EXPECT_EQ(place_threads(6, Bind::none, two).node_threads, (Counts{6}));
  EXPECT_THROW(place_threads(6, Bind::cores, two), InputError);
}

// Each member of the team must run on the processor that was chosen for it. The calling thread is bound only while the
// result of bind_caller() exists.
TEST(Placement, TeamsRunWhereTheyArePlaced) {
  if (!has_hwloc()) GTEST_SKIP() << "built without hwloc";
  const auto processors = static_cast<unsigned>(system_topology().nodes[0].processors.size());
  ThreadPlacement placement;
  try {
    placement = place_threads(std::min(4u, processors), Bind::cores);
  } catch (const InputError &error) {
    GTEST_SKIP() << error.what();
  }
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  Team team(placement);
  std::vector<unsigned> ran_on(team.size());
  {
    const BoundThread bound = team.bind_caller();
    team.run([&](unsigned member) { ran_on[member] = static_cast<unsigned>(sched_getcpu()); });
  }
  for (unsigned member = 0; member < team.size(); ++member)
    EXPECT_EQ(ran_on[member], placement.threads[member].processor) << "member " << member;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace outcrop
