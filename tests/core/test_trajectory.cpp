// These tests check trajectories. The trajectory must return its states in reverse order, even if transfers have
// faults. A commit must survive failures. Damage must be reported.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/trajectory/trajectory.hpp"

namespace outcrop {
namespace {

// The transfers of the first field bypass the page cache, although the field ends in the middle of a page. The second
// field is small.
const StateLayout layout({{"u", {3, 300, 301}}, {"p", {5}}}, "float64");

class TrajectoryTest : public testing::Test {
 protected:
  TrajectoryTest() : folder_((std::filesystem::current_path() / "outcrop_trajectory_XXXXXX").string()) {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + folder_);
  }
  ~TrajectoryTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string &name = "a") const { return folder_ + "/" + name; }

  std::unique_ptr<Trajectory> make(std::uint64_t states, std::uint64_t in_memory = 0, const Faults &faults = {}) const {
    return Trajectory::create(layout, states, in_memory * layout.buffer_bytes(), {{path(), 0}}, {.faults = faults});
  }
  std::unique_ptr<Trajectory> open(const Faults &faults = {}) const {
    return Trajectory::open(path(), {.faults = faults});
  }

 private:
  std::string folder_;
};

// Returns the cells of a field in the state that belongs to the given seed.
std::vector<std::byte> cells(std::size_t field, unsigned seed) {
  std::vector<std::byte> found(layout.cell_bytes(field));
  std::mt19937 random(1000 * seed + static_cast<unsigned>(field));
  for (std::byte &byte : found) byte = static_cast<std::byte>(random());
  return found;
}

void push(Trajectory &trajectory, unsigned seed) {
  std::vector<std::byte> u = cells(0, seed), p = cells(1, seed);
  trajectory.push(std::array<const std::byte *, 2>{u.data(), p.data()});
  std::memset(u.data(), 0, u.size());  // the caller may change this memory immediately after the push
}

void expect_popped(Trajectory &trajectory, std::uint64_t state, unsigned seed) {
  const Trajectory::Popped popped = trajectory.pop();
  EXPECT_EQ(popped.state, state);
  for (std::size_t field = 0; field < 2; ++field)
    EXPECT_EQ(std::memcmp(popped.data + layout.offset(field), cells(field, seed).data(), layout.cell_bytes(field)), 0)
        << "state " << state << " field " << field;
}

TEST_F(TrajectoryTest, StatesComeBackInReverseOrder) {
  for (const std::uint64_t in_memory : {0, 3, 8}) {
    const auto trajectory = make(8, in_memory);
    for (unsigned i = 0; i < 8; ++i) push(*trajectory, i);
    EXPECT_THROW(push(*trajectory, 8), InputError);
    for (unsigned i = 8; i-- > 4;) expect_popped(*trajectory, i, i);
    for (unsigned i = 4; i < 7; ++i) push(*trajectory, 10 + i);
    for (unsigned i = 7; i-- > 0;) expect_popped(*trajectory, i, i < 4 ? i : 10 + i);
    EXPECT_THROW(trajectory->pop(), InputError);
    trajectory->remove();
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
}

TEST_F(TrajectoryTest, PoppedMemoryStaysUnchangedWhileStatesArePushed) {
  const auto trajectory = make(6, 3);
  for (unsigned i = 0; i < 6; ++i) push(*trajectory, i);
  for (unsigned i = 6; i-- > 0;) {
    const Trajectory::Popped popped = trajectory->pop();
    for (unsigned j = i; j < 6; ++j) push(*trajectory, 20 + j);
    EXPECT_EQ(std::memcmp(popped.data, cells(0, i).data(), layout.cell_bytes(0)), 0) << i;
    for (unsigned j = 6; j-- > i;) expect_popped(*trajectory, j, 20 + j);
  }
}

TEST_F(TrajectoryTest, ACommitIsFoundAgainAndPoppedStatesStayUntilTheNext) {
  {
    const auto trajectory = make(8, 3);
    for (unsigned i = 0; i < 6; ++i) push(*trajectory, i);
    trajectory->commit();
    push(*trajectory, 6);  // this state is lost, because no commit follows
  }
  {
    const auto trajectory = open();
    EXPECT_EQ(trajectory->states(), 6U);
    for (unsigned i = 6; i-- > 2;) expect_popped(*trajectory, i, i);
    EXPECT_THROW(push(*trajectory, 9), InputError);
  }
  const auto trajectory = open();
  for (unsigned i = 6; i-- > 4;) expect_popped(*trajectory, i, i);
  trajectory->commit();
  push(*trajectory, 9);
  expect_popped(*trajectory, 4, 9);
  trajectory->close();
  EXPECT_EQ(open()->states(), 4U);
}

TEST_F(TrajectoryTest, ShortAndRepeatedTransfersLoseNothing) {
  const Faults faults{.seed = 3, .again_rate = 0.2, .short_rate = 0.3};
  const auto trajectory = make(9, 2, faults);
  std::mt19937 random(5);
  std::vector<unsigned> stack;
  for (unsigned i = 0; i < 60; ++i) {
    if (stack.size() < 9 && (stack.empty() || random() % 5 < 3)) {
      push(*trajectory, i);
      stack.push_back(i);
    } else {
      expect_popped(*trajectory, stack.size() - 1, stack.back());
      stack.pop_back();
    }
  }
}

TEST_F(TrajectoryTest, AFailedWriteLeavesTheLastCommit) {
  {
    const auto trajectory = make(9);
    for (unsigned i = 0; i < 3; ++i) push(*trajectory, i);
    trajectory->commit();
  }
  {
    const auto trajectory = open({.error_at = 4});
    EXPECT_THROW(
        {
          for (unsigned i = 3; i < 9; ++i) push(*trajectory, i);
          trajectory->commit();
        },
        StorageError);
    EXPECT_THROW(trajectory->commit(), StorageError);
  }
  const auto trajectory = open();
  for (unsigned i = 3; i-- > 0;) expect_popped(*trajectory, i, i);
}

TEST_F(TrajectoryTest, ADamagedStateIsReported) {
  {
    const auto trajectory = make(4);
    for (unsigned i = 0; i < 4; ++i) push(*trajectory, i);
    trajectory->commit();
  }
  const auto trajectory = open({.flip_at = 0});
  try {
    trajectory->pop();
    FAIL();
  } catch (const CorruptionError &error) {
    EXPECT_NE(std::string(error.what()).find("u/c.3.0.0.0"), std::string::npos) << error.what();
  }
  expect_popped(*trajectory, 3, 3);  // the file itself is not damaged
}

TEST_F(TrajectoryTest, NoRoomIsRefusedBeforeAFileIsMade) {
  const std::uint64_t one = layout.stored_bytes();
  const std::vector<DirectoryLimit> places{{path(), 2 * one}, {path("b"), 3 * one}};
  EXPECT_THROW(Trajectory::create(layout, 7, layout.buffer_bytes(), places), InputError);
  EXPECT_FALSE(std::filesystem::exists(path()));
  const auto trajectory = Trajectory::create(layout, 6, layout.buffer_bytes(), places);
  for (unsigned i = 0; i < 6; ++i) push(*trajectory, i);
  EXPECT_THROW(trajectory->commit(), InputError);  // the state in memory has no file
  EXPECT_TRUE(std::filesystem::is_symlink(path() + "/u/c.3.0.0.0"));
  EXPECT_TRUE(std::filesystem::is_regular_file(path("b") + "/u/c.5.0.0.0"));
  for (unsigned i = 6; i-- > 0;) expect_popped(*trajectory, i, i);
  trajectory->remove();
  EXPECT_FALSE(std::filesystem::exists(path("b")));
}

TEST_F(TrajectoryTest, ADirectoryThatIsNotOursIsRefused) {
  std::filesystem::create_directory(path());
  EXPECT_THROW(open(), InputError);
  std::ofstream(path() + "/file") << "x";
  EXPECT_THROW(make(2), InputError);
  EXPECT_TRUE(std::filesystem::exists(path() + "/file"));
  std::filesystem::remove(path() + "/file");
  const auto trajectory = make(2);
  EXPECT_THROW(open(), InputError);  // in use
}

TEST(TrajectoryManifestTest, RefusesEveryDamage) {
  const TrajectoryManifest manifest{std::string(32, 'a'),    "float64",   layout.fields(), 5, 2,
                                    {{".", 3}, {"/b c", 2}}, {1, 2, 3, 4}};
  const std::string text = manifest.to_text();
  const TrajectoryManifest found = TrajectoryManifest::parse(text, "m");
  EXPECT_EQ(found.to_text(), text);
  EXPECT_EQ(found.places[1].path, "/b c");
  EXPECT_EQ(found.committed(), 2U);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_THROW(TrajectoryManifest::parse(other, "m"), CorruptionError) << i;
    EXPECT_THROW(TrajectoryManifest::parse(text.substr(0, i), "m"), CorruptionError) << i;
  }
}

}  // namespace
}  // namespace outcrop
