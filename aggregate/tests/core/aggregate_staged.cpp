// These tests check staged steps. A stage, a file or a process can fail. After each such failure, each step must be in
// the file or be reported as lost.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <set>

#include "aggregate_sinks.hpp"
#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// A small file system in memory. The destructor removes the file system.
class SmallDisk {
 public:
  SmallDisk(const std::string &folder, const char *size)
      : folder_(folder), is_there_(mount("tmpfs", folder.c_str(), "tmpfs", 0, size) == 0) {}
  ~SmallDisk() {
    if (is_there_) umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk &) = delete;
  SmallDisk &operator=(const SmallDisk &) = delete;
  bool is_there() const { return is_there_; }

 private:
  const std::string folder_;
  const bool is_there_;
};

class AggregateStaged : public ::testing::Test {
 protected:
  FileOptions staged(std::uint64_t bytes = 0) const { return {.stage_folder = stage(), .stage_bytes = bytes}; }
  std::string stage() const { return folder.file("stage"); }
  std::string path() const { return folder.file("out"); }

  // Returns the names of all files in the stage of path(), except for the locks.
  std::set<std::string> left() const {
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(stage_of_file(stage(), path())))
      if (entry.path().extension() != ".lock") names.insert(entry.path().filename().string());
    return names;
  }

  // Leaves one step in the stage. The step cannot be drained, because its target was removed.
  void leave_step(int size) {
    ThreadRanks ranks(size, 2);
    const std::string text = told_alike<StorageError>(ranks, size, [&](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
      File file = File::create(plan, path(), staged());
      if (rank == 0) std::filesystem::remove(path());
      Link(transport).barrier();
      write_step(file, rank, size, 1, 0);
      file.close();
    });
    EXPECT_TRUE(says(text, path())) << text;
    EXPECT_EQ(left().size(), 6u) << "data and lists of three aggregators";
  }

  const Folder folder;
};

// This test checks that reads return the newest bytes, and that the drain writes the newest bytes last. The steps have
// random bases and can overlap. A byte can therefore belong to one aggregator in one step, and to another aggregator in
// another step.
TEST_F(AggregateStaged, TheNewestBytesAreReadAndDrainedWhereverStepsOverlap) {
  constexpr int size = 4;
  Random random(7);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::uint64_t> bases;
    for (int step = 0; step < 10; ++step) bases.push_back(below(random, 5) * (1 + below(random, 60000)));
    const std::uint64_t room = round % 2 == 0 ? 0 : 600'000;
    const std::uint64_t end = *std::ranges::max_element(bases) + bytes_of_step(size);
    std::vector<std::byte> expected(end);
    ThreadRanks ranks(size, round % 3);
    on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
      std::vector<std::byte> model(end);
      const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
      File file = File::create(plan, path(), staged(room));
      for (std::uint64_t step = 0; step < bases.size(); ++step) {
        write_step(file, rank, size, step, bases[step]);
        for (std::uint64_t i = bases[step]; i < bases[step] + bytes_of_step(size); ++i) model[i] = value(step, i);
        const std::uint64_t base = bases[step * 5 % (step + 1)];
        EXPECT_TRUE(read_part(file, base) == part_of(rank, size, base, [&](std::uint64_t i) { return model[i]; }));
      }
      file.close();
      if (rank == 0) expected = model;
    });
    EXPECT_TRUE(whole_file(path()) == expected) << "round " << round;
    EXPECT_TRUE(left().empty());
  }
}

TEST_F(AggregateStaged, WhatIsStagedIsReadFromThere) {
  constexpr int size = 3;
  ThreadRanks ranks(size, 0);
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
    File file = File::create(plan, path(), staged());
    write_step(file, rank, size, 3, 5000);
    file.flush();
    if (rank == 0) std::filesystem::resize_file(path(), 0);  // now only the stage has the bytes
    Link(transport).barrier();
    EXPECT_TRUE(read_part(file, 5000) == part_of(rank, size, 5000, [](std::uint64_t i) { return value(3, i); }));
    file.close();
  });
}

TEST_F(AggregateStaged, AStageThatIsTooSmallIsRefusedBeforeAnythingIsMade) {
  ThreadRanks ranks(4, 2);
  const std::string text = told_alike<InputError>(ranks, 4, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 4), small_plan());
    File::create(plan, path(), staged(100'000));
  });
  EXPECT_TRUE(says(text, "stage_bytes")) << text;
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_FALSE(std::filesystem::exists(stage()));
}

TEST_F(AggregateStaged, RanksThatDifferAreRefused) {
  ThreadRanks ranks(3, 0);
  const std::string text = told_alike<InputError>(ranks, 3, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 3), small_plan());
    File::create(plan, path(), rank == 2 ? FileOptions{} : staged());
  });
  EXPECT_TRUE(says(text, "ranks 0 and 2 differ")) << text;
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(AggregateStaged, AFullDiskOfTheFileIsToldToAllAndNothingIsLost) {
  constexpr int size = 4;
  std::filesystem::create_symlink("/dev/full", path());
  ThreadRanks ranks(size, 2);
  const std::string text = told_alike<StorageError>(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
    File file = File::create(plan, path(), staged());
    write_step(file, rank, size, 1, 0);
    EXPECT_THROW(file.flush(), StorageError);
    file.close();
  });
  EXPECT_TRUE(says(text, "No space left")) << text;
  const std::string where = stage_of_file(stage(), path());
  std::filesystem::remove(path());
  outcrop::File::create(path(), 0);
  EXPECT_EQ(recover_stage(where, path()).drained.size(), 3u);
  const std::vector<std::byte> found = whole_file(path());
  ASSERT_EQ(found.size(), bytes_of_step(size));
  for (std::uint64_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], value(1, i)) << i;
}

TEST_F(AggregateStaged, AFullTierIsToldToAllAndTheFileCanStillBeUsed) {
  std::filesystem::create_directory(stage());
  const SmallDisk disk(stage(), "size=600k");
  if (!disk.is_there()) GTEST_SKIP() << "file systems cannot be mounted";
  constexpr int size = 4;
  const std::string filler = stage() + "/filler";
  ThreadRanks ranks(size, 0);
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Link link(transport);
    const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan(1));
    File file = File::create(plan, path(), staged());
    if (rank == 0) outcrop::File::create(filler, 400'000);
    link.barrier();
    EXPECT_THROW(write_step(file, rank, size, 1, 0), StorageError);
    link.barrier();
    if (rank == 0) std::filesystem::remove(filler);
    link.barrier();
    for (std::uint64_t step = 2; step < 6; ++step)
      write_step(file, rank, size, step, 0);  // the stage has room for only one step
    file.close();
  });
  EXPECT_TRUE(left().empty());
  const std::vector<std::byte> found = whole_file(path());
  for (std::uint64_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], value(5, i)) << i;
}

// This test checks that close() empties the stage, even if the program keeps the `Operation` objects of its writes
// after close().
TEST_F(AggregateStaged, AFileThatIsClosedIsGivenUpThoughItsOperationsAreKept) {
  constexpr int size = 3;
  ThreadRanks ranks(size, 0);
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
    const std::vector<std::byte> mine = part_of(rank, size, 0, [](std::uint64_t i) { return value(1, i); });
    const std::vector<std::span<const std::byte>> memory{mine};
    std::vector<Operation> kept;
    for (int turn = 0; turn < 3; ++turn) {
      File file = File::create(plan, path(), staged());
      kept.push_back(file.begin_write(memory, 0));
      kept.back().wait();
      file.close();
      Link(transport).barrier();
      EXPECT_TRUE(left().empty());
      Link(transport).barrier();
    }
    EXPECT_GT(kept.front().timing().seconds, 0);
  });
}

TEST_F(AggregateStaged, WhatCouldNotBeDrainedKeepsTheFileFromBeingOpenedUntilItCan) {
  constexpr int size = 4;
  leave_step(size);
  ThreadRanks ranks(2, 0);  // 2 ranks open the file that 4 ranks have written
  const auto open = [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 2), small_plan());
    File file = File::open(plan, path(), true, staged());
    EXPECT_EQ(file.notes().size(), 3u);
    EXPECT_TRUE(says(file.notes().front(), "step 0 of aggregator 0 was staged")) << file.notes().front();
    file.close();
  };
  const std::string text = told_alike<InputError>(ranks, 2, open);
  EXPECT_TRUE(says(text, "cannot be drained")) << text;
  outcrop::File::create(path(), 0);
  ThreadRanks again(2, 0);
  on_ranks(again, 2, open);
  const std::vector<std::byte> found = whole_file(path());
  ASSERT_EQ(found.size(), bytes_of_step(size));
  for (std::uint64_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], value(1, i)) << i;
}

TEST_F(AggregateStaged, AFileThatIsMadeAnewGetsNothingOfAnEarlierRunAndSaysSo) {
  leave_step(4);
  ThreadRanks ranks(4, 2);
  on_ranks(ranks, 4, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 4), small_plan());
    File file = File::create(plan, path(), staged());
    EXPECT_EQ(file.notes().size(), 3u);
    EXPECT_TRUE(says(file.notes().back(), "was dropped")) << file.notes().back();
    file.close();
  });
  EXPECT_EQ(std::filesystem::file_size(path()), 0u);
  EXPECT_TRUE(left().empty());
}

// In this test, a program leaves a step in its stage. Then the program creates the file again without the stage, and
// writes the file. When the file is opened with the stage, the old step must not overwrite the new bytes.
TEST_F(AggregateStaged, AStepOfAnEarlierFileIsNotDrainedIntoAFileThatWasCreatedAgain) {
  constexpr int size = 4;
  leave_step(size);
  ThreadRanks ranks(size, 2);
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
    File file = File::create(plan, path());
    write_step(file, rank, size, 2, 0);
    file.close();
  });
  if (identity_of(path()) == FileIdentity{}) GTEST_SKIP() << "this file system has no extended attributes";
  ThreadRanks again(size, 2);
  const std::string text = told_alike<InputError>(again, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
    File::open(plan, path(), true, staged());
  });
  EXPECT_TRUE(says(text, "created again later; remove " + stage())) << text;
  EXPECT_EQ(left().size(), 6u);
  const std::vector<std::byte> found = whole_file(path());
  for (std::uint64_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], value(2, i)) << i;
}

// Starts a process whose ranks write steps, and kills the process. Returns the number of the last step that ended on
// all ranks before the kill.
std::uint64_t write_until_killed(const std::string &path, const FileOptions &options, int size, useconds_t wait) {
  int told[2];
  if (pipe(told) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    ThreadRanks ranks(size, 2);
    on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, size), small_plan());
      File file = File::create(plan, path, options);
      for (std::uint64_t step = 0; step < 500; ++step) {
        write_step(file, rank, size, step, step * bytes_of_step(size));
        if (rank == 0 && write(told[1], &step, sizeof step) < 0) _exit(1);
      }
    });
    _exit(0);
  }
  ::close(told[1]);
  std::uint64_t last = 0;
  EXPECT_GT(::read(told[0], &last, sizeof last), 0);
  usleep(wait);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  while (::read(told[0], &last, sizeof last) > 0) continue;
  ::close(told[0]);
  return last;
}

TEST_F(AggregateStaged, KilledAtAnyMomentEveryStepThatWasToldIsInTheFileAfterRecovery) {
  Random random(11);
  for (int round = 0; round < 20; ++round) {
    constexpr int size = 4;
    const std::uint64_t room = round % 2 == 0 ? 0 : 1'000'000;
    const std::uint64_t last =
        write_until_killed(path(), staged(room), size, static_cast<useconds_t>(below(random, 30'000)));
    const int readers = 1 + round % 3;
    ThreadRanks ranks(readers, 0);
    on_ranks(ranks, readers, [&](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, readers), small_plan());
      File file = File::open(plan, path(), true, staged());
      for (const std::string &note : file.notes())
        EXPECT_TRUE(!says(note, "is lost") || std::stoull(note.substr(5)) > last) << note;
      file.close();
    });
    const std::vector<std::byte> found = whole_file(path());
    ASSERT_GE(found.size(), (last + 1) * bytes_of_step(size)) << "round " << round;
    for (std::uint64_t i = 0; i < (last + 1) * bytes_of_step(size); ++i)
      ASSERT_EQ(found[i], value(i / bytes_of_step(size), i)) << "step " << i / bytes_of_step(size) << " of " << last;
    EXPECT_TRUE(left().empty());
  }
}

}  // namespace
}  // namespace outcrop::aggregate
