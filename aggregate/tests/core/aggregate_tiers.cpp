// These tests check that the buffers are on the chosen tier. On a tier in memory, the pages of the buffers must be on
// the given NUMA node. On a tier in a folder, the mapped files must be in this folder. If the chosen tier has no room,
// the buffers must be on the next tier. The data must be correct on all tiers.
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/plan.hpp"
#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t bytes = std::uint64_t{5} << 20;

std::string text_of(const std::string &path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool is_mapped(const std::string &folder) { return text_of("/proc/self/maps").find(folder + "/") != std::string::npos; }

const std::vector<std::uint32_t> first_node = {0};

TEST(AggregateTiers, MemoryIsBoundToItsNode) {
  if (const std::string why = why_not_on_nodes(first_node); !why.empty()) GTEST_SKIP() << why;
  const auto segment = Segment::make(bytes, 0, {"hbm", first_node});
  int mode = -1;
  unsigned long mask[64] = {};
  ASSERT_EQ(syscall(SYS_get_mempolicy, &mode, mask, sizeof mask * 8, segment->data(), MPOL_F_ADDR), 0);
  EXPECT_EQ(mode, MPOL_BIND);
  EXPECT_EQ(mask[0], 1UL);
  void *pages[] = {segment->data(), segment->data() + segment->bytes() - 1};
  int lies[] = {-1, -1};
  ASSERT_EQ(syscall(SYS_move_pages, 0, 2UL, pages, nullptr, lies, 0), 0);
  EXPECT_EQ(lies[0], 0) << "taken before anybody has touched it";
  EXPECT_EQ(lies[1], 0);
  EXPECT_EQ(segment->data()[bytes - 1], std::byte{0});
  EXPECT_EQ(where({"hbm", first_node}), "memory of NUMA node 0");
}

TEST(AggregateTiers, NodesThatAreNotThereAreNamed) {
  const std::vector<std::uint32_t> missing = {1000};
  EXPECT_NE(why_not_on_nodes(missing).find("buffers cannot be placed on NUMA node 1000"), std::string::npos);
  EXPECT_THROW(Segment::make(bytes, 0, {"hbm", missing}), InputError);
}

TEST(AggregateTiers, NodesWithTooLittleLeftAreRefusedBeforeAnythingIsTaken) {
  if (!std::filesystem::exists("/sys/devices/system/node/node0/meminfo")) GTEST_SKIP() << "the system does not report";
  const std::span<std::byte> too_much(static_cast<std::byte *>(nullptr), std::size_t{1} << 60);
  EXPECT_THROW(allocate_on_nodes(too_much, first_node), InputError);
}

TEST(AggregateTiers, FilesAreMappedInTheirFolder) {
  const Folder folder;
  const std::string path = folder.file("");
  const auto segment = Segment::make(bytes, 0, {"nvm", {}, path});
  EXPECT_TRUE(is_mapped(std::filesystem::canonical(path)));
  EXPECT_TRUE(std::filesystem::is_empty(path)) << "without a name, so that nothing stays behind";
  std::string reason;
  segment->data()[bytes - 1] = std::byte{3};
  EXPECT_EQ(Segment::attach(segment->address(), reason), segment);
  try {
    Segment::make(bytes, 0, {"nvm", {}, path + "/none"});
    ADD_FAILURE();
  } catch (const InputError &error) {
    EXPECT_NE(std::string(error.what()).find("/none"), std::string::npos) << error.what();
  }
}

// A machine file that describes the given tiers. In write(), the ranks use this machine file and write a file together.
// Then write() checks the file. It returns the explanation, or the error of the first rank.
class Ladder {
 public:
  explicit Ladder(const std::string &tiers) : machine_(folder_.file("machine")) {
    std::filesystem::create_directory(nvm());
    std::string text = tiers;
    for (std::size_t at; (at = text.find("NVM")) != std::string::npos;) text.replace(at, 3, nvm());
    std::ofstream(machine_) << text << "[target]\nread = 1e9\nwrite = 1e9\n";
  }

  std::string nvm() const { return folder_.file("nvm"); }
  std::string out() const { return folder_.file("out"); }

  std::string write(Texts environment, int ranks = 4, int per_node = 0) {
    environment["OUTCROP_AGG_MACHINE"] = machine_;
    environment["OUTCROP_AGG_BUFFER"] = "64KiB";
    environment["OUTCROP_AGG_BUFFERS"] = "2";
    const std::string path = out();
    std::string told;
    ThreadRanks world(ranks, per_node);
    bool is_refused = false;
    on_ranks(world, ranks, [&](int rank, outcrop_transport &transport) {
      const auto number = static_cast<std::uint64_t>(rank), count = static_cast<std::uint64_t>(ranks);
      const Declaration mine{{{strided(number * 8, part, 8, count * 8)}}};
      try {
        PlacedPlan placed = PlacedPlan::make(transport, mine, agreed_settings(transport, {{}, {}, environment}));
        FileOptions options{.durable = true};
        placed.set_stage(options, true);
        aggregate::File file = aggregate::File::create(placed.plan(), path, options);
        std::vector<std::uint64_t> values(part);
        for (std::size_t i = 0; i < part; ++i) values[i] = i * count + number;
        const std::span<const std::byte> memory[] = {std::as_bytes(std::span(values))};
        file.write(memory);
        if (rank == 0) is_in_file_ = is_mapped(std::filesystem::canonical(nvm()));
        file.close();
        if (rank == 0) told = placed.explain();
      } catch (const InputError &error) {
        if (rank == 0) told = error.what();
        if (rank == 0) is_refused = true;
      }
    });
    if (is_refused) return told;
    std::vector<std::uint64_t> found(part * static_cast<std::size_t>(ranks)), expected(found.size());
    std::ifstream(path).read(reinterpret_cast<char *>(found.data()), static_cast<std::streamsize>(found.size() * 8));
    std::iota(expected.begin(), expected.end(), 0U);
    EXPECT_EQ(found, expected);
    return told;
  }

  bool is_in_file() const { return is_in_file_; }

 private:
  static constexpr std::size_t part = 40000;  // how many 8-byte numbers each rank writes
  Folder folder_;
  std::string machine_;
  bool is_in_file_ = false;
};

std::string tiers_with(const std::string &hbm, const std::string &dram) {
  return "[hbm]\nkind = \"hbm\"\nnodes = \"0\"\ncapacity = \"" + hbm +
         "\"\nread = 180e9\nwrite = 180e9\n[dram]\nkind = \"dram\"\ncapacity = \"" + dram +
         "\"\nread = 90e9\nwrite = 90e9\n[nvm]\nkind = \"nvm\"\ndirectory = \"NVM\"\ncapacity = \"1GiB\"\nread = 2e9\n"
         "write = 1e9\n";
}

TEST(AggregateTiers, HbmCappedFallsToDramAndDramCappedToNvm) {
  if (const std::string why = why_not_on_nodes(first_node); !why.empty()) GTEST_SKIP() << why;
  Ladder wide(tiers_with("1GiB", "1GiB"));
  EXPECT_NE(wide.write({}).find("buffers of this node in hbm: 136 KiB, memory of NUMA node 0"), std::string::npos)
      << wide.write({});
  EXPECT_FALSE(wide.is_in_file());
  Ladder capped(tiers_with("100KiB", "1GiB"));
  const std::string text = capped.write({});
  EXPECT_NE(text.find("buffers of this node in dram: 136 KiB, ordinary memory"), std::string::npos) << text;
  EXPECT_NE(text.find("in dram instead of hbm, which has no room left"), std::string::npos) << text;
  Ladder low(tiers_with("100KiB", "100KiB"));
  EXPECT_NE(low.write({}).find("buffers of this node in nvm: 136 KiB, a file in " + low.nvm()), std::string::npos);
  EXPECT_TRUE(low.is_in_file());
}

TEST(AggregateTiers, AggregatorsOfANodeShareATiersRoom) {
  Ladder ladder(tiers_with("1KiB", "150KiB"));  // dram has room for the buffers of one aggregator
  const std::string text = ladder.write({{"OUTCROP_AGG_COUNT", "2"}});
  EXPECT_NE(text.find("buffers of this node in dram: 136 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("buffers of this node in nvm: 136 KiB"), std::string::npos) << text;
}

TEST(AggregateTiers, ATierMayBeAskedForByNameOrByHowLongItKeeps) {
  Ladder ladder(tiers_with("1KiB", "1GiB"));
  for (const Texts &asked : {Texts{{"OUTCROP_AGG_TIER", "nvm"}}, Texts{{"OUTCROP_AGG_PERSISTENCE", "permanent"}}})
    EXPECT_NE(ladder.write(asked, 4, 2).find("buffers of this node in nvm"), std::string::npos);
  Ladder low(tiers_with("1KiB", "1KiB"));
  EXPECT_NE(low.write({{"OUTCROP_AGG_TIER", "dram"}}).find("there is room for 0 of them"), std::string::npos);
  EXPECT_NE(ladder.write({{"OUTCROP_AGG_TIER", "tape"}}).find("'tape' is unknown"), std::string::npos);
}

TEST(AggregateTiers, StepsAreStagedWhereTheModelSaysSo) {
  Ladder ladder(
      "[dram]\nkind = \"dram\"\ncapacity = \"1GiB\"\nread = 90e9\nwrite = 90e9\n"
      "[nvm]\nkind = \"nvm\"\ndirectory = \"NVM\"\ncapacity = \"1GiB\"\nread = 20e9\nwrite = 20e9\n");
  Texts asked = {{"OUTCROP_AGG_STAGE", "auto"}};
  EXPECT_NE(ladder.write(asked).find("staging: none"), std::string::npos);
  asked["OUTCROP_AGG_SECONDS_BETWEEN"] = "10";
  const std::string text = ladder.write(asked);
  EXPECT_NE(text.find("staging: on nvm"), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::exists(ladder.nvm() + "/" +
                                      std::filesystem::path(stage_of_file("", ladder.out())).filename().string()))
      << "it was there";
}

TEST(AggregateTiers, FilesThatAreOnlyReadAreLookedForOnAllStages) {
  const Folder folder;
  const std::string machine = folder.file("machine");
  std::ofstream(machine) << "[dram]\nkind = \"dram\"\ncapacity = \"1GiB\"\nread = 9e9\nwrite = 9e9\n"
                         << "[ssd]\ndirectory = \"" << folder.file("") << "\"\ncapacity = \"1GiB\"\nread = 9e9\n"
                         << "write = 9e9\n";
  ThreadRanks world(1);
  const Texts environment = {
      {"OUTCROP_AGG_MACHINE", machine}, {"OUTCROP_AGG_STAGE", "auto"}, {"OUTCROP_AGG_STAGE_BYTES", "1MiB"}};
  PlacedPlan placed =
      PlacedPlan::make(world.transport(0), {}, agreed_settings(world.transport(0), {{}, {}, environment}));
  FileOptions options;
  placed.set_stage(options, false);
  EXPECT_EQ(options.settle_folders, std::vector<std::string>{folder.file("")});
  EXPECT_EQ(options.stage_folder, "");
  EXPECT_EQ(options.stage_bytes, 0U) << "without a folder that would be refused";
}

TEST(AggregateTiers, SettingsThatDifferAreNamed) {
  ThreadRanks world(2);
  on_ranks(world, 2, [&](int rank, outcrop_transport &transport) {
    try {
      PlacedPlan::make(transport, {},
                       agreed_settings(transport, {{}, {{"outcrop_agg_count", std::to_string(rank + 1)}}, {}}));
      ADD_FAILURE();
    } catch (const InputError &error) {
      EXPECT_STREQ(error.what(), "ranks 0 and 1 have different settings: count = 1 ; count = 2 ");
    }
  });
}

}  // namespace
}  // namespace outcrop::aggregate
