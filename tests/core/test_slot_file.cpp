// These tests check commits of arrays. The data of the last commit must never be overwritten. Only changed tiles must
// be written. Damaged tiles must be reported.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/exec/slot_file.hpp"

namespace outcrop {
namespace {

constexpr std::size_t tile = 8192;
constexpr std::size_t array = 5 * tile + 777;  // the last tile is shorter than a page

class SlotFileTest : public testing::TestWithParam<SlotFile::Way> {
 protected:
  SlotFileTest() : folder_((std::filesystem::current_path() / "outcrop_slots_XXXXXX").string()), memory_(array) {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + folder_);
    File::create(path(), 2 * SlotFile::stride_bytes(array));
    for (std::size_t i = 0; i < array; ++i) memory_.data()[i] = static_cast<std::byte>(random_());
  }
  ~SlotFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/tiles"; }
  SlotFile open(bool writable = true) const { return {path(), array, tile, writable, 4, GetParam()}; }
  std::byte &at(std::size_t number) { return memory_.data()[number * tile + 5]; }
  std::vector<std::byte> values() const { return {memory_.data(), memory_.data() + array}; }

  // Returns the bytes that a reader gets with the checksums and slots of a commit.
  std::vector<std::byte> read(const CommittedTiles &commit) const {
    SlotFile file(path(), array, tile, false, 3);
    const AlignedMemory found(array);
    EXPECT_TRUE(file.load(commit, found.data()).empty());
    return {found.data(), found.data() + array};
  }

 private:
  std::string folder_;
  std::mt19937 random_{1};

 protected:
  AlignedMemory memory_;
};

TEST_P(SlotFileTest, WritesWhatChangedAndKeepsTheLastCommit) {
  SlotFile file = open();
  EXPECT_EQ(file.write_changed(memory_.data()), array);
  const CommittedTiles first = file.written();
  const std::vector<std::byte> values_first = values();
  file.accept();
  at(1) ^= std::byte{1};
  at(5) ^= std::byte{1};
  EXPECT_EQ(file.write_changed(memory_.data()), tile + 777);
  const CommittedTiles second = file.written();
  EXPECT_EQ(read(first), values_first);
  EXPECT_EQ(read(second), values());
  EXPECT_EQ(second.slots, (std::vector<std::uint8_t>{0, 1, 0, 0, 0, 1}));
}

TEST_P(SlotFileTest, AWriteThatWasNotAcceptedIsDoneAgain) {
  SlotFile file = open();
  file.write_changed(memory_.data());
  file.accept();
  const CommittedTiles first = file.written();
  const std::vector<std::byte> values_first = values();
  at(2) ^= std::byte{1};
  EXPECT_EQ(file.write_changed(memory_.data()), tile);
  at(3) ^= std::byte{1};
  EXPECT_EQ(file.write_changed(memory_.data()), 2 * tile);
  EXPECT_EQ(read(first), values_first);
  EXPECT_EQ(read(file.written()), values());
}

TEST_P(SlotFileTest, GoesOnFromACommitThatWasLoaded) {
  CommittedTiles commit;
  {
    SlotFile file = open();
    file.write_changed(memory_.data());
    commit = file.written();
  }
  SlotFile file = open();
  EXPECT_TRUE(file.load(commit, memory_.data()).empty());
  EXPECT_EQ(file.write_changed(memory_.data()), 0U) << "nothing has changed";
  EXPECT_EQ(file.written().slots, commit.slots);
  at(4) ^= std::byte{1};
  EXPECT_EQ(file.write_changed(memory_.data()), tile);
  EXPECT_EQ(file.written().slots[4], 1);
}

TEST_P(SlotFileTest, NamesTheTilesThatAreDamaged) {
  SlotFile file = open();
  file.write_changed(memory_.data());
  const CommittedTiles commit = file.written();
  {
    const Mapping mapping(File::open(path(), true, false));
    mapping.data()[3 * tile + 100] ^= std::byte{16};
    mapping.flush(0, mapping.size());
  }
  for (std::byte *memory : {static_cast<std::byte *>(nullptr), memory_.data()}) {
    const std::vector<DamagedTile> damaged = open(false).load(commit, memory);
    ASSERT_EQ(damaged.size(), 1U);
    EXPECT_EQ(damaged[0].tile, 3U);
    EXPECT_EQ(damaged[0].offset, 3 * tile);
    EXPECT_EQ(damaged[0].error, 0);
  }
}

TEST_P(SlotFileTest, AFileCutShortIsDamagedNotFatal) {
  SlotFile file = open();
  file.write_changed(memory_.data());
  const CommittedTiles commit = file.written();
  SlotFile reader(path(), array, tile, false, 2);
  std::filesystem::resize_file(path(), 2 * tile + 1);
  const std::vector<DamagedTile> damaged = reader.load(commit, memory_.data());
  ASSERT_EQ(damaged.size(), 4U);
  EXPECT_NE(damaged[0].error, 0);
}

TEST_P(SlotFileTest, ShowsTheCommitWhereItLies) {
  SlotFile file = open();
  file.write_changed(memory_.data());
  file.accept();
  at(0) ^= std::byte{1};
  at(3) ^= std::byte{1};
  file.write_changed(memory_.data());
  SlotFile reader = open(false);
  EXPECT_TRUE(reader.load(file.written(), nullptr).empty());
  const Mapping mapping = reader.map();
  EXPECT_FALSE(mapping.writable());
  EXPECT_EQ(std::vector(mapping.data(), mapping.data() + mapping.size()), values());
}

INSTANTIATE_TEST_SUITE_P(Ways, SlotFileTest, testing::Values(SlotFile::Way::best, SlotFile::Way::mapping));

// It is possible that another user has replaced the file by a link or a pipe. The constructor of `SlotFile` must
// neither follow a link nor wait for a pipe.
TEST_P(SlotFileTest, IsNoLinkAndNoPipe) {
  const std::string victim = path() + "-victim", link = path() + "-link", pipe = path() + "-pipe", text = "keep this";
  std::ofstream(victim) << text;
  std::filesystem::create_symlink(victim, link);
  EXPECT_THROW(SlotFile(link, 8, 4096, true, 1, GetParam()), StorageError);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0666), 0);
  EXPECT_THROW(SlotFile(pipe, 8, 4096, false, 1, GetParam()), StorageError);
  std::string found;
  std::ifstream file(victim);
  std::getline(file, found);
  EXPECT_EQ(found, text);
}

TEST(SlotFilePrimitive, IsNeverCalledWhatItIsNot) {
  const std::string path = (std::filesystem::current_path() / "outcrop_primitive").string();
  File::create(path, 2 * tile);
  const bool is_synchronous = Mapping(File::open(path, true, false), true).synchronous();
  const std::string best = SlotFile(path, tile, tile, true, 1).primitive();
  const std::string mapped = SlotFile(path, tile, tile, true, 1, SlotFile::Way::mapping).primitive();
  std::filesystem::remove(path);
  EXPECT_EQ(best == "MAP_SYNC + cache-line write-back", is_synchronous);
  EXPECT_EQ(mapped, is_synchronous ? "MAP_SYNC + cache-line write-back" : "msync");
}

}  // namespace
}  // namespace outcrop
