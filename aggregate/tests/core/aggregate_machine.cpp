// These tests check machine files. Placement must use the figures of the machine file. Errors in a machine file must
// name the file, the line and a remedy. The descriptions of several nodes must be joined correctly.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/placement/machine.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

const std::string node_text = R"(
# a node
[ssd]
kind = "nvme"              # files
directory = "/local"
capacity = "128GiB"
persistence = "job"
read = "3GB/s"
write = 2e9
write_latency = 2e-5

[hbm]
kind = "hbm"
nodes = "2,3"
capacity = "16GiB"
read = "180GB/s"
write = "180GB/s"

[network]
cards = 4
card = "25GB/s"

[lustre]
kind = "pfs"
read = "300GB/s"
write = "200GB/s"
)";

std::string problem_of(const std::string &text) {
  try {
    parse_node(text, "node.toml");
  } catch (const InputError &error) {
    return error.what();
  }
  return "";
}

TEST(AggregateMachine, SaysWhatANodeIs) {
  const NodeDescription node = parse_node(node_text, "node.toml");
  ASSERT_EQ(node.tiers.size(), 2);
  const NodeTier &memory = node.tiers[0], &files = node.tiers[1];
  EXPECT_EQ(memory.tier.name, "hbm");
  EXPECT_EQ(memory.medium.numa_nodes, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(memory.tier.persistence, Persistence::process);
  EXPECT_FALSE(memory.tier.holds_files);
  EXPECT_EQ(memory.room_bytes, std::uint64_t{16} << 30);
  EXPECT_EQ(files.tier.fill_bytes_per_second, 2e9);
  EXPECT_EQ(files.tier.empty_bytes_per_second, 3e9);
  EXPECT_EQ(files.tier.latency_seconds, 2e-5);
  EXPECT_EQ(files.tier.persistence, Persistence::job);
  EXPECT_TRUE(files.tier.holds_files);
  EXPECT_EQ(files.medium.folder, "/local");
  EXPECT_EQ(node.network.cards_on_node, 4);
  EXPECT_EQ(node.network.card_bytes_per_second, 25e9);
  ASSERT_TRUE(node.target);
  EXPECT_TRUE(node.target->write.is_shared);
  EXPECT_EQ(node.target->write.bytes_per_second, 200e9);
  EXPECT_EQ(node.target->read.bytes_per_second, 300e9);
}

TEST(AggregateMachine, TargetIsTheTierThatHasTheFolder) {
  const std::string text = node_text.substr(0, node_text.find("[lustre]"));
  const auto target_of = [&](const std::string &folder) {
    return parse_node(text_of_this_node(text, "node.toml", folder), "node.toml").target;
  };
  const auto target = target_of("/local/out");
  ASSERT_TRUE(target);
  EXPECT_FALSE(target->write.is_shared);
  EXPECT_EQ(target->write.bytes_per_second, 2e9);
  EXPECT_EQ(target->read.bytes_per_second, 3e9);
  EXPECT_EQ(target->text, "ssd, declared");
  ASSERT_TRUE(target_of("/locally"));
  EXPECT_NE(target_of("/locally")->text.find("assumed for"), std::string::npos);
}

TEST(AggregateMachine, RefusesWhatCannotBe) {
  const std::string tier = "[dram]\nkind = \"dram\"\ncapacity = \"1GiB\"\nread = 1e9\nwrite = 1e9\n";
  EXPECT_EQ(problem_of(tier), "");
  EXPECT_EQ(problem_of(tier + "colour = 1\n"),
            "node.toml: dram.colour is unknown; there are capacity, directory, kind, nodes, origin, persistence, read, "
            "read_latency, write, write_latency");
  const std::pair<const char *, const char *> wrong[] = {
      {"kind = \"dram\"\n", "node.toml:1: a [table] must be named first"},
      {"[a\n", "node.toml:1: ] is missing"},
      {"[a]\nread 3\n", "node.toml:2: = is missing after read"},
      {"[a]\nread = \"3\n", "node.toml:2: a text ends with"},
      {"[a]\nread = 3 4\n", "node.toml:2: unexpected text: 4"},
      {"[a]\n[a]\n", "node.toml:2: table a occurs twice"},
      {"[a]\nread = 1\nread = 1\n", "node.toml:3: read occurs twice"},
      {"[a]\nkind = \"tape\"\n", "a.kind = 'tape' must be hbm, dram"},
      {"[a]\ncapacity = \"2GiB\"\nread = 1e9\n", "a.write is missing"},
      {"[a]\ncapacity = \"lots\"\n", "a.capacity = 'lots' must be a size"},
      {"[a]\ncapacity = 1\nwrite = 0\n", "a.write = '0' must be a bandwidth"},
      {"[a]\ncapacity = 1\nwrite = nan\n", "a.write = 'nan' must be a bandwidth"},
      {"[a]\ndirectory = \"here\"\n", "a.directory = 'here' must be an absolute path"},
      {"[a]\nkind = \"hbm\"\nnodes = \"2;3\"\n", "a.nodes = '2;3' must be numbers of NUMA nodes"},
      {"[network]\ncards = 0\n", "network.cards = '0' must be a whole number"},
  };
  for (const auto &[text, line] : wrong) EXPECT_NE(problem_of(text).find(line), std::string::npos) << problem_of(text);
  EXPECT_NE(problem_of(tier + "persistence = \"job\"\n").find("at most process for dram"), std::string::npos);
}

TEST(AggregateMachine, NodesThatDifferAreJoined) {
  const std::string target = "[target]\nread = 1e9\nwrite = 1e9\n";
  const std::string dram = "[dram]\nkind = \"dram\"\ncapacity = 1000\nread = 1e9\nwrite = 1e9\n";
  const std::string hbm = "[hbm]\nkind = \"hbm\"\nnodes = \"1\"\ncapacity = 10\nread = 9e9\nwrite = 9e9\n";
  std::vector<NodeDescription> nodes;
  for (const std::string &text : {dram, hbm + dram, hbm + dram + "[unusable]\nhbm = \"broken\"\n"})
    nodes.push_back(parse_node(text + target, "node.toml"));
  const JoinedNodes joined = join_nodes(nodes);
  ASSERT_EQ(joined.tiers.size(), 2);
  EXPECT_EQ(joined.tiers[0].name, "dram");
  EXPECT_EQ(joined.room_bytes, (std::vector<std::uint64_t>{1000, 0, 1000, 10, 1000, 0}));
  EXPECT_EQ(joined.media[1][1].numa_nodes, std::vector<std::uint32_t>{1});
  EXPECT_NE(std::ranges::find(joined.lines, "hbm of node 2 is left out: broken"), joined.lines.end());
  EXPECT_THROW(join_nodes({parse_node(target, "node.toml")}), InputError);
}

TEST(AggregateMachine, WhatIsNotHereIsLeftOut) {
  const std::string text = text_of_this_node(node_text, "node.toml", ".");
  const NodeDescription node = parse_node(text, "node.toml");
  EXPECT_NE(node.tiers[0].unusable.find("NUMA nodes 2, 3"), std::string::npos) << "this machine has no such nodes";
  EXPECT_EQ(node.tiers[1].unusable, "there is no directory /local");
  const std::string target =
      text_of_this_node("[dram]\nkind = \"dram\"\ncapacity = 1\nread = 1\nwrite = 1\n", "n", ".");
  EXPECT_TRUE(parse_node(target, "n").target) << "assumed by the file system";
}

TEST(AggregateMachine, PlacesOfRanksAreDistances) {
  const std::string file = "0: 0 a 0\n 1 :0 a 0  # the same node\n2: 0 a 1\n\n3: 0 b 0\n4: 1 a 0\n";
  const std::vector<std::uint32_t> node_of_rank = {0, 0, 1, 2, 3};
  const Distances distances = distances_by_places(file, "places", node_of_rank);
  std::vector<double> row(4);
  distances(0, row);
  EXPECT_EQ(row, (std::vector<double>{0, 2, 3, 5}));
  const std::pair<const char *, const char *> wrong[] = {
      {"0: 0 0\n", "places:1: must be `rank: group switch port`"},
      {"0: 0 0 0 0\n", "places:1: must be"},
      {"5: 0 0 0\n", "places: rank 0 is missing; there must be a line for each rank from 0 on"},
      {"0: 0 0 0\n0: 0 0 0\n", "places:2: rank 0 occurs twice"},
      {"0: 0 0 0\n1: 0 0 1\n", "places has 2 ranks; there are 5"},
      {"0: 0 0 0\n1: 0 0 1\n2: 1 0 0\n3: 1 0 1\n4: 1 0 2\n",
       "places: ranks 0 and 1 are on the same node, but have different places"},
      {"0: 0 0 0\n2: 0 0 0\n", "rank 1 is missing"},
      {"", "rank 0 is missing"},
  };
  for (const auto &[text, line] : wrong) {
    try {
      distances_by_places(text, "places", node_of_rank);
      ADD_FAILURE() << text;
    } catch (const InputError &error) {
      EXPECT_NE(std::string(error.what()).find(line), std::string::npos) << error.what();
    }
  }
}

TEST(AggregateMachine, AFileOfPlacesComesBeforeWhatProvidersKnow) {
  const Folder folder;
  const std::string places = folder.file("places");
  std::ofstream(places) << "0: g s 1\n1: g t 1\n2: g s 2\n";
  ThreadRanks world(3, 1);
  on_ranks(world, 3, [&](int rank, outcrop_transport &transport) {
    MachineSources sources;
    sources.node_text = "[dram]\nkind = \"dram\"\ncapacity = 1\nread = 1\nwrite = 1\n";
    sources.distances = [](std::size_t, std::span<double> row) { std::ranges::fill(row, 7); };
    sources.distances_known = "distances by a provider";
    std::vector<double> row(3);
    const Link link(transport);
    DetectedMachine found = find_machine(link, sources);
    found.machine.distances(0, row);
    EXPECT_EQ(row, (std::vector<double>{7, 7, 7}));
    EXPECT_NE(std::ranges::find(found.lines, "distances by a provider"), found.lines.end());
    sources.topology_file = places;
    found = find_machine(link, sources);
    found.machine.distances(0, row);
    EXPECT_EQ(row, (std::vector<double>{0, 3, 2})) << "at rank " << rank;
    EXPECT_NE(std::ranges::find(found.lines, "distances by " + places), found.lines.end());
  });
}

}  // namespace
}  // namespace outcrop::aggregate
