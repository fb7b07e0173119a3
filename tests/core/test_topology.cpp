// These tests check the nodes and cores of many synthetic machines. Other tests bind threads to cores of this machine,
// and check that the binding ends.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/exec/topology.hpp"
#include "pages.hpp"

namespace outcrop {
namespace {

using Counts = std::vector<unsigned>;

#define REQUIRE_HWLOC() \
  if (!has_hwloc()) GTEST_SKIP() << "built without hwloc"

Counts cores_of(const Topology &topology) {
  Counts cores;
  for (const NumaNode &node : topology.nodes) cores.push_back(node.cores);
  return cores;
}

std::vector<unsigned> processors_of(const Topology &topology) {
  std::vector<unsigned> processors;
  for (const NumaNode &node : topology.nodes)
    processors.insert(processors.end(), node.processors.begin(), node.processors.end());
  return processors;
}

TEST(Topology, FindsNodesAndCores) {
  REQUIRE_HWLOC();
  EXPECT_EQ(cores_of(synthetic_topology("core:4 pu:1")), (Counts{4}));
  EXPECT_EQ(cores_of(synthetic_topology("numa:1 core:4 pu:2")), (Counts{4}));
  EXPECT_EQ(cores_of(synthetic_topology("numa:2 l3:1 core:4 pu:2")), (Counts{4, 4}));
  EXPECT_EQ(cores_of(synthetic_topology("pack:2 numa:4 core:3 pu:1")), (Counts(8, 3)));
  EXPECT_EQ(cores_of(synthetic_topology("numa:4 l3:2 core:4 pu:1")),
            (Counts(4, 8)));  // this machine has a node with several last-level caches
  EXPECT_FALSE(synthetic_topology("numa:2 core:1 pu:1").this_system);
}

TEST(Topology, ListsOneProcessorOfEachCoreFirst) {
  REQUIRE_HWLOC();
  const Topology topology = synthetic_topology("numa:2 core:2 pu:2");
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[0].processors, (std::vector<unsigned>{0, 2, 1, 3}));
  EXPECT_EQ(topology.nodes[1].processors, (std::vector<unsigned>{4, 6, 5, 7}));
}

TEST(Topology, KeepsToTheProcessorsAllowed) {
  REQUIRE_HWLOC();
  const std::string machine = "numa:4 core:2 pu:2";
  EXPECT_EQ(cores_of(synthetic_topology(machine, "0-5")), (Counts{2, 1}));
  EXPECT_EQ(cores_of(synthetic_topology(machine, "12")), (Counts{1}));
  EXPECT_EQ(synthetic_topology(machine, "12").nodes[0].os_index, 3u);
  EXPECT_EQ(processors_of(synthetic_topology(machine, "1,3,9")), (std::vector<unsigned>{1, 3, 9}));
  EXPECT_EQ(processors_of(synthetic_topology(machine, "999")).size(), 16u) << "not a processor of this machine";
}

// Two kinds of memory have no processors of their own: HBM beside the ordinary memory of a socket, and memory that all
// sockets share. Memory without processors must not count as a node.
TEST(Topology, MemoryAloneIsNoNode) {
  REQUIRE_HWLOC();
  const Topology with_hbm = synthetic_topology("pack:2 [numa] [numa] core:4 pu:1");
  EXPECT_EQ(cores_of(with_hbm), (Counts{4, 4}));
  const Topology with_far = synthetic_topology("[numa] pack:2 [numa] core:4 pu:1");
  EXPECT_EQ(cores_of(with_far), (Counts{4, 4}));
  EXPECT_NE(with_far.nodes[0].os_index, with_far.nodes[1].os_index);
}

TEST(Topology, RefusesWhatIsNoDescription) {
  EXPECT_THROW(synthetic_topology("two nodes, please"), InputError);
  EXPECT_THROW(synthetic_topology("numa:0"), InputError);
}

TEST(Topology, ListsTheProcessorsOfThisThread) {
  REQUIRE_HWLOC();
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const Topology topology = system_topology();
  if (!topology.this_system) GTEST_SKIP() << "hwloc was told about another machine";
  const std::vector<unsigned> processors = processors_of(topology);
  EXPECT_EQ(processors.size(), static_cast<std::size_t>(CPU_COUNT(&allowed)));
  for (const unsigned processor : processors) EXPECT_TRUE(CPU_ISSET(processor, &allowed));
  EXPECT_EQ(std::set<unsigned>(processors.begin(), processors.end()).size(), processors.size());
}

TEST(BoundThread, RunsOnItsProcessorAndGoesBack) {
  cpu_set_t before, during, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (const unsigned processor : processors_of(system_topology())) {
    const BoundThread bound(processor);
    if (!bound.bound()) GTEST_SKIP() << "threads cannot be bound here";
    ASSERT_EQ(sched_getaffinity(0, sizeof during, &during), 0);
    EXPECT_EQ(CPU_COUNT(&during), 1);
    EXPECT_TRUE(CPU_ISSET(processor, &during));
    EXPECT_EQ(sched_getcpu(), static_cast<int>(processor));
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(BoundThread, WithoutAProcessorChangesNothing) {
  cpu_set_t before, during;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const BoundThread bound(std::nullopt);
  ASSERT_EQ(sched_getaffinity(0, sizeof during, &during), 0);
  EXPECT_FALSE(bound.bound());
  EXPECT_TRUE(CPU_EQUAL(&before, &during));
}

TEST(Memory, ComesFromTheNodeItIsBoundTo) {
  REQUIRE_HWLOC();
  const Topology topology = system_topology();
  for (const NumaNode &node : topology.nodes) {
    const AlignedMemory memory(std::size_t{4} << 20);
    if (!topology.this_system || !bind_memory(memory.data(), memory.size(), {node.os_index}))
      GTEST_SKIP() << "memory cannot be bound here";
    for (std::size_t at = 0; at < memory.size(); at += AlignedMemory::page_bytes) memory.data()[at] = std::byte{1};
    const int found = node_of_page(memory.data());
    if (found < 0) GTEST_SKIP() << "the system does not tell where pages lie";
    EXPECT_EQ(found, static_cast<int>(node.os_index));
    EXPECT_EQ(node_of_page(memory.data() + memory.size() - 1), found);
  }
}

TEST(MemoryNodes, HoldTheMemoryOfThisSystem) {
  const std::vector<MemoryNode> nodes = memory_nodes();
  ASSERT_FALSE(nodes.empty());
  if (!has_hwloc()) return;
  const auto bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  std::uint64_t sum = 0;
  for (const MemoryNode &node : nodes) sum += node.bytes;
  EXPECT_LE(sum, bytes + bytes / 10);
  EXPECT_GT(nodes.front().processors, 0u);
}

}  // namespace
}  // namespace outcrop
