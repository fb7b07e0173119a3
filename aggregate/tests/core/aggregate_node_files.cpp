// These tests check node files. Any number of ranks must be able to read all node files together as one file. A merge
// must make one file with the same bytes as the node files. Damage must be detected.
#include <gtest/gtest.h>

#include "aggregate_sinks.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

class AggregateNodeFiles : public ::testing::Test {
 protected:
  static constexpr int size = 6;
  const std::vector<std::uint64_t> bases{0, 300'000, 100'001, 650'000};  // some ranges overlap, and some leave holes

  std::string path() const { return folder.file("out"); }

  void write() {
    ThreadRanks ranks(size, 2);
    on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
      File file = File::create(plan, path(), {.size_bytes = 1'000'000, .node_files = true});
      for (std::uint64_t step = 0; step < bases.size(); ++step) write_step(file, rank, size, step, bases[step]);
      const auto expect = expected();
      for (const std::uint64_t base : bases)
        EXPECT_TRUE(read_part(file, base) == part_of(rank, size, base, [&](std::uint64_t i) { return expect[i]; }));
      file.close();
    });
  }
  std::vector<std::byte> expected() const {
    std::vector<std::byte> bytes(1'000'000);
    for (std::uint64_t step = 0; step < bases.size(); ++step)
      for (std::uint64_t i = bases[step]; i < bases[step] + bytes_of_step(size); ++i) bytes[i] = value(step, i);
    return bytes;
  }

  const Folder folder;
};

TEST_F(AggregateNodeFiles, AreReadByAnyNumberOfRanks) {
  write();
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_TRUE(std::filesystem::exists(path() + ".node-4"));
  const auto expect = expected();
  for (const int readers : {1, 5}) {
    ThreadRanks ranks(readers, 3);
    on_ranks(ranks, readers, [&](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, readers), small_plan());
      File file = File::open(plan, path(), false, {.node_files = true});
      for (std::uint64_t base = 0; base + bytes_of_step(readers) <= expect.size(); base += 77'777)
        EXPECT_TRUE(read_part(file, base) == part_of(rank, readers, base, [&](std::uint64_t i) { return expect[i]; }));
      EXPECT_THROW(read_part(file, expect.size()), StorageError) << "nothing is there";
      file.close();
    });
  }
}

TEST_F(AggregateNodeFiles, AreMergedIntoTheOneFile) {
  write();
  EXPECT_EQ(merge(path() + ".index", folder.file("merged")), 1'000'000u);
  EXPECT_TRUE(whole_file(folder.file("merged")) == expected());
  EXPECT_THROW(merge(path() + ".index", path() + ".node-4"), InputError);
}

TEST_F(AggregateNodeFiles, AreNotMergedWhenOneIsDamagedAndTheTargetStays) {
  write();
  outcrop::File::create(folder.file("merged"), 17);
  std::filesystem::resize_file(path() + ".node-4", 400'000);
  EXPECT_THROW(merge(path() + ".index", folder.file("merged")), CorruptionError);
  std::filesystem::remove(path() + ".node-4");
  EXPECT_THROW(merge(path() + ".index", folder.file("merged")), StorageError);
  EXPECT_EQ(std::filesystem::file_size(folder.file("merged")), 17u);
  for (const auto &entry : std::filesystem::directory_iterator(std::filesystem::path(path()).parent_path()))
    EXPECT_NE(entry.path().extension(), unfinished);
}

TEST_F(AggregateNodeFiles, HaveNoIndexBeforeTheirBytesAreThere) {
  write();
  ThreadRanks ranks(2, 1);
  on_ranks(ranks, 2, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 2), small_plan());
    File file = File::create(plan, path(), {.node_files = true});
    EXPECT_FALSE(std::filesystem::exists(path() + ".index")) << "that of the files before must not stay";
    Link(transport).barrier();
    write_step(file, rank, 2, 0, 0);
    file.flush();
    EXPECT_TRUE(std::filesystem::exists(path() + ".index"));
    EXPECT_NO_THROW(file.close());
  });
}

TEST_F(AggregateNodeFiles, MayBeFlushedWhereTheyAreOnlyRead) {
  write();
  ThreadRanks ranks(2, 0);
  on_ranks(ranks, 2, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 2), small_plan());
    File file = File::open(plan, path(), false, {.node_files = true});
    EXPECT_NO_THROW(file.flush());
  });
}

TEST_F(AggregateNodeFiles, ThatAreNoneEndEarly) {
  ThreadRanks ranks(2, 0);
  const std::string text = told_alike<StorageError>(ranks, 2, [&](int rank, outcrop_transport &transport) {
    File::create(Plan::make(transport, {}), path(), {.node_files = true}).close();
    const Plan plan = Plan::make(transport, in_turns(rank, 2), small_plan());
    File file = File::open(plan, path(), false, {.node_files = true});
    read_part(file, 0);
  });
  EXPECT_TRUE(says(text, path() + ".index")) << text;
}

TEST_F(AggregateNodeFiles, AreNeitherStagedNorChanged) {
  write();
  ThreadRanks ranks(2, 0);
  const std::string text = told_alike<InputError>(ranks, 2, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 2), small_plan());
    File::open(plan, path(), true, {.node_files = true});
  });
  EXPECT_TRUE(says(text, "created anew")) << text;
}

TEST(NodeIndex, AnyDamageIsSeen) {
  const NodeIndex index{77, {"a.node-0", "a.node-4"}, {{{0, 10}, 0}, {{10, 4096}, 1}}, {100, 0, 5000}};
  const std::string text = to_text(index);
  EXPECT_EQ(node_index_of(text, "index"), index);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(node_index_of(damaged, "index"), CorruptionError) << i;
    EXPECT_THROW(node_index_of(text.substr(0, i), "index"), CorruptionError) << i;
  }
}

}  // namespace
}  // namespace outcrop::aggregate
