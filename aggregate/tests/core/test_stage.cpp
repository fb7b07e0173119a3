// These tests check that a kill at any moment does not damage staged steps. The target must have all staged steps,
// completely and in order. Lost steps must be reported.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t target_bytes = 300'000;
using Bytes = std::vector<std::byte>;

class StageTest : public testing::Test {
 protected:
  StageTest() : folder_((std::filesystem::current_path() / "outcrop_stage_XXXXXX").string()), memory_(target_bytes) {
    if (mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no folder for the tests: " + folder_);
    File::create(target(), target_bytes);
    for (std::size_t i = 0; i < target_bytes; ++i) memory_.data()[i] = static_cast<std::byte>(random_());
  }
  ~StageTest() override { std::filesystem::remove_all(folder_); }

  std::string target() const { return folder_ + "/target"; }
  std::string stage() const { return folder_ + "/stage"; }
  std::string file(const std::string &name) const { return stage() + "/" + name; }
  StageSpec spec(std::uint32_t writer = 0, std::uint64_t room = 0) const { return {stage(), target(), writer, room}; }

  // Returns random runs of bytes in random order. A run is a pair of an offset and a length. The runs do not overlap.
  static std::vector<std::pair<std::uint64_t, std::size_t>> runs(std::mt19937_64 &random) {
    std::vector<std::pair<std::uint64_t, std::size_t>> all;
    for (std::uint64_t at = random() % 5000; at < target_bytes;) {
      const std::size_t length = std::min<std::uint64_t>(target_bytes - at, 1 + random() % 20'000);
      all.emplace_back(at, length);
      at += length + random() % 3 * 1000;
    }
    std::ranges::shuffle(all, random);
    return all;
  }

  // Stages a step, and writes the same bytes to `expected`. The bytes of each step differ from the bytes of the
  // previous step.
  void write_step(Stage &to, std::uint64_t step, Bytes &expected) {
    const auto all = runs(random_);
    std::uint64_t bytes = 0;
    for (const auto &[at, length] : all) bytes += length;
    to.begin(step, bytes, all.size());
    for (const auto &[at, length] : all) {
      for (std::size_t i = at; i < at + length; ++i) expected[i] = memory_.data()[i] = value(step, i);
      to.append(at, {memory_.data() + at, length});
    }
    to.seal();
  }

  // Stages and drains a step. Then restores the files of the step to their state before the drain. If `damaged_run` is
  // given, changes one byte of the run with this number. Writes the bytes of the step to `expected`.
  void leave_staged(Bytes &expected, std::optional<std::size_t> damaged_run = {}) {
    const std::string data = folder_ + "/data", list = folder_ + "/list";
    {
      Stage staged(spec());
      write_step(staged, 7, expected);
      staged.finish();
      std::filesystem::copy(file("step-7.writer-0.data"), data);
      std::filesystem::copy(file("step-7.writer-0.done"), list);
    }
    left_ = list_of(list);
    if (damaged_run) {
      const std::uint64_t place = left_.runs[*damaged_run].data;
      const std::byte wrong = content(data)[place] ^ std::byte{1};
      File::open(data, true, false).write(place, &wrong, 1);
    }
    std::filesystem::rename(data, file("step-7.writer-0.data"));
    std::filesystem::rename(list, file("step-7.writer-0.list"));
  }

  static StageList list_of(const std::string &path) {
    const Bytes text = content(path);
    return stage_list_of({reinterpret_cast<const char *>(text.data()), text.size()}, path);
  }

  // Writes the bytes of a step to `expected`. The function uses the same random numbers as the writer of the step to
  // find the bytes.
  static void put_step(std::mt19937_64 &random, std::uint64_t step, Bytes &expected) {
    for (const auto &[at, length] : runs(random))
      for (std::size_t i = at; i < at + length; ++i) expected[i] = value(step, i);
  }

  static std::byte value(std::uint64_t step, std::size_t place) {
    return static_cast<std::byte>(31 * step + place * 7 + 1);
  }

  static Bytes content(const std::string &path) {
    Bytes bytes(std::filesystem::file_size(path));
    File::open(path, false, false).read(0, bytes.data(), bytes.size());
    return bytes;
  }

  std::string folder_;
  StageList left_;
  std::mt19937_64 random_{42};
  AlignedMemory memory_;
};

TEST_F(StageTest, ManyStepsReachTheTargetAndTheFolderIsEmptyThen) {
  Bytes expected(target_bytes);
  {
    Stage staged(spec());
    for (std::uint64_t step = 0; step < 12; ++step) write_step(staged, step, expected);
    staged.finish();
    EXPECT_EQ(content(target()), expected);
  }
  for (const auto &entry : std::filesystem::directory_iterator(stage()))
    EXPECT_EQ(entry.path().filename(), "writer-0.lock");
}

TEST_F(StageTest, RoomIsKeptByLettingDrainedStepsGo) {
  Bytes expected(target_bytes);
  Stage staged(spec(0, 1'200'000));
  for (std::uint64_t step = 0; step < 10; ++step) {
    write_step(staged, step, expected);
    std::uint64_t used = 0;
    for (const auto &entry : std::filesystem::directory_iterator(stage()))
      if (entry.path().extension() == ".data") used += entry.file_size();
    EXPECT_LE(used, 1'200'000);
  }
  staged.finish();
  EXPECT_EQ(content(target()), expected);
}

TEST_F(StageTest, AStepThatIsLargerThanTheRoomIsRefused) {
  Stage staged(spec(0, 100'000));
  EXPECT_THROW(staged.begin(0, 100'000, 1), StorageError);
  staged.begin(1, 50'000, 1);  // the refused call has not changed the stage
  staged.append(0, {memory_.data(), 50'000});
  staged.seal();
}

TEST_F(StageTest, WhatIsStagedIsReadBackEvenAcrossRuns) {
  Bytes expected(target_bytes);
  Stage staged(spec());
  staged.begin(0, target_bytes, 3);
  staged.append(100'000, {memory_.data() + 100'000, 150'000});
  staged.append(0, {memory_.data(), 100'000});
  staged.seal();
  Bytes found(180'000);
  ASSERT_TRUE(staged.read(50'000, found));
  EXPECT_TRUE(std::ranges::equal(found, std::span(memory_.data() + 50'000, found.size())));
  found.resize(200'001);
  EXPECT_FALSE(staged.read(50'000, found)) << "a byte of it was never staged";
}

TEST_F(StageTest, TheNewestStagedBytesAreRead) {
  Stage staged(spec());
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::fill_n(memory_.data(), 1000, static_cast<std::byte>(step + 1));
    staged.begin(step, 1000, 1);
    staged.append(step * 500, {memory_.data(), 1000});
    staged.seal();
  }
  Bytes found(500);
  ASSERT_TRUE(staged.read(700, found));
  EXPECT_EQ(found[0], std::byte{2});
  ASSERT_TRUE(staged.read(0, found));
  EXPECT_EQ(found[0], std::byte{1});
  found.resize(1000);
  EXPECT_FALSE(staged.read(0, found)) << "half of it is newer than the step that has all of it";
}

TEST_F(StageTest, KilledAtAnyMomentEveryStepIsRecoveredOrNamed) {
  std::set<std::uint64_t> moments;
  for (int round = 0; round < 60; ++round) {
    std::filesystem::remove_all(stage());
    std::filesystem::create_directories(stage());
    std::filesystem::remove(target());
    File::create(target(), target_bytes);
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    std::mt19937_64 as_child = random_;
    const pid_t child = fork();
    if (child == 0) {
      Stage staged(spec());
      Bytes ignored(target_bytes);
      for (std::uint64_t step = 1; step < 200; ++step) {
        write_step(staged, step, ignored);
        if (write(told[1], &step, sizeof step) < 0) _exit(1);
      }
      _exit(0);
    }
    ::close(told[1]);
    std::uint64_t sealed = 0;
    for (int steps = round % 7; steps > 0; --steps) ASSERT_GT(::read(told[0], &sealed, sizeof sealed), 0);
    usleep(static_cast<useconds_t>(random_() % 20'000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (::read(told[0], &sealed, sizeof sealed) > 0) continue;
    ::close(told[0]);
    moments.insert(sealed);

    const Recovery recovery = recover_stage(stage(), target());
    EXPECT_TRUE(recovery.failed.empty());
    EXPECT_LE(recovery.lost.size(), 1u);
    for (const StageName &lost : recovery.lost) EXPECT_GT(lost.step, sealed) << "a sealed step was given up";
    // The target must have all steps whose seal() has returned. The target may also have the next step, but no step
    // after the next step.
    const Bytes found = content(target());
    Bytes expected(target_bytes);
    for (std::uint64_t step = 1; step <= sealed; ++step) put_step(as_child, step, expected);
    const bool is_last = found == expected;
    put_step(as_child, sealed + 1, expected);
    EXPECT_TRUE(is_last || found == expected) << "after step " << sealed;
    EXPECT_TRUE(recover_stage(stage(), target()).drained.empty()) << "nothing is left to do";
  }
  EXPECT_GE(moments.size(), 7u) << "the kills must hit different moments";
}

// A kill may interrupt the staging or the draining of a step. Each of the next three tests begins with a stage that
// such a kill has left.
TEST_F(StageTest, AListThatWasNotWrittenToItsEndIsNone) {
  std::filesystem::create_directories(stage());
  File::create(file("step-7.writer-0.data"), 5000);
  File::create(file("step-7.writer-0.list.tmp"), 10);
  const Recovery recovery = recover_stage(stage(), target());
  ASSERT_EQ(recovery.lost.size(), 1u);
  EXPECT_EQ(recovery.lost[0].step, 7u);
  EXPECT_FALSE(std::filesystem::exists(file("step-7.writer-0.list.tmp")));
  EXPECT_FALSE(std::filesystem::exists(file("step-7.writer-0.data")));
}

TEST_F(StageTest, ADrainThatWasInterruptedIsDoneAgain) {
  Bytes expected(target_bytes);
  leave_staged(expected);
  Bytes torn = expected;
  std::fill_n(torn.begin() + 1000, 100'000, std::byte{0});
  File::open(target(), true, false).write(0, torn.data(), torn.size());
  EXPECT_THROW(Stage{spec()}, InputError) << "a new writer must not go on over what an earlier one has left";
  EXPECT_EQ(recover_stage(stage(), target()).drained.size(), 1u);
  EXPECT_EQ(content(target()), expected);
}

TEST_F(StageTest, AStepThatIsDoneIsNotDrainedAgain) {
  Bytes expected(target_bytes);
  {
    Stage staged(spec());
    write_step(staged, 7, expected);
    staged.finish();
    std::filesystem::copy(file("step-7.writer-0.done"), folder_ + "/list");
  }
  std::filesystem::rename(folder_ + "/list", file("step-7.writer-0.done"));  // recovery has already removed the data
  const Recovery recovery = recover_stage(stage(), target());
  EXPECT_TRUE(recovery.drained.empty() && recovery.lost.empty() && recovery.failed.empty());
}

TEST_F(StageTest, DamagedBytesDoNotReachTheTarget) {
  Bytes expected(target_bytes);
  leave_staged(expected, 0);
  File::create(target(), target_bytes);
  const Recovery recovery = recover_stage(stage(), target());
  ASSERT_EQ(recovery.failed.size(), 1u);
  EXPECT_NE(recovery.failed[0].find("checksum mismatch"), std::string::npos);
  EXPECT_EQ(content(target())[left_.runs[0].target], std::byte{0});
  EXPECT_TRUE(std::filesystem::exists(file("step-7.writer-0.list"))) << "a damaged step stays in the stage";
}

TEST_F(StageTest, ATargetThatFailsIsToldAndTheStepStays) {
  File::create(folder_ + "/other", 10);
  Stage staged({stage(), folder_ + "/other", 0, 0});
  std::filesystem::remove(folder_ + "/other");
  staged.begin(0, 1000, 1);
  staged.append(0, {memory_.data(), 1000});
  staged.seal();
  EXPECT_THROW(staged.finish(), StorageError);
  EXPECT_TRUE(std::filesystem::exists(file("step-0.writer-0.list")));
}

TEST_F(StageTest, AWriterThatLivesIsLeftAlone) {
  Stage staged(spec(3));
  staged.begin(0, 1000, 1);
  const Recovery recovery = recover_stage(stage(), target());
  EXPECT_EQ(recovery.busy, std::vector<std::uint32_t>{3});
  EXPECT_TRUE(recovery.lost.empty());
  EXPECT_THROW(Stage(spec(3)), InputError);
  EXPECT_NO_THROW(Stage(spec(4)));
}

TEST(StageList, AnyDamageIsSeen) {
  const StageList list{"/some/where", 12, 3, {{0, 10, 0, 77}, {5000, 4096, 4096, 1}}};
  const std::string text = to_text(list);
  EXPECT_EQ(stage_list_of(text, "list"), list);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(stage_list_of(damaged, "list"), CorruptionError) << i;
    EXPECT_THROW(stage_list_of(text.substr(0, i), "list"), CorruptionError) << i;
  }
}

TEST(StageName, OnlyNamesOfAStageAreTakenForSome) {
  const auto name = StageName::of("step-12.writer-3.list");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->text(), "step-12.writer-3.list");
  for (const char *other : {"step-012.writer-3.list", "step-12.writer-3.lists", "writer-3.lock", "step-.writer-3.data",
                            "step-12.writer-3.list.tmp", "step--1.writer-3.data"})
    EXPECT_FALSE(StageName::of(other)) << other;
}

}  // namespace
}  // namespace outcrop::aggregate
