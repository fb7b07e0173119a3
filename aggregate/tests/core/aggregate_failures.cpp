// These tests check that the error of one rank reaches all ranks, and that no rank waits forever.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t block = 20000;

// Returns the declaration of one rank. The declaration has `count` blocks, and the blocks of the ranks are interleaved.
Declaration in_turns(int rank, int size, std::uint64_t count = 10) {
  const auto ranks = static_cast<std::uint64_t>(size), number = static_cast<std::uint64_t>(rank);
  return {{{strided(number * block, count, block, ranks * block)}}};
}

// Runs act() on all ranks, and returns the text of each rank's error. The test fails if a rank throws no error.
template <typename Error>
std::vector<std::string> told(ThreadRanks &ranks, int size, const std::function<void(int, outcrop_transport &)> &act) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    try {
      act(rank, transport);
    } catch (const Error &error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return texts;
}

void expect_all_alike(const std::vector<std::string> &texts, const std::vector<std::string> &parts) {
  for (const std::string &text : texts) {
    EXPECT_EQ(text, texts.front());
    for (const std::string &part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << " lacks " << part;
  }
}

struct Layout {
  int size, per_node;
};

class AggregateFailures : public ::testing::TestWithParam<Layout> {
 protected:
  AggregateFailures() : ranks(GetParam().size, GetParam().per_node), size(GetParam().size) {}
  ThreadRanks ranks;
  const int size;
  const Folder folder;
  const std::vector<std::byte> memory = std::vector<std::byte>(10 * block, std::byte{1});
};

INSTANTIATE_TEST_SUITE_P(Layouts, AggregateFailures,
                         ::testing::Values(Layout{1, 0}, Layout{5, 0}, Layout{6, 2}, Layout{7, 1}, Layout{16, 5}));

TEST_P(AggregateFailures, FullStorageIsToldToAllWithRankAndOffset) {
  for (const bool beside : {false, true}) {
    const std::vector<std::string> texts = told<StorageError>(ranks, size, [&](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192, .aggregators = 2});
      File file = File::create(plan, folder.file("full"), {.faults = {.full_after_bytes = 50000}});
      const std::vector<std::span<const std::byte>> spans{memory};
      if (beside)
        file.begin_write(spans, 4096).wait();
      else
        file.write(spans, 4096);
    });
    expect_all_alike(texts, {"write by rank ", folder.file("full"), "offset ", "No space left"});
  }
}

TEST_P(AggregateFailures, TheNextOperationGoesOn) {
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192, .aggregators = 2});
    File bad = File::create(plan, folder.file("bad"), {.faults = {.error_at = 3}});
    const std::vector<std::span<const std::byte>> spans{memory};
    Operation first = bad.begin_write(spans), second = bad.begin_write(spans);
    EXPECT_THROW(first.wait(), StorageError);
    EXPECT_THROW(first.wait(), StorageError);  // the second call must throw the same error
    second.wait();
    File good = File::create(plan, folder.file("good"));
    good.write(spans);
    std::vector<std::byte> found(memory.size());
    const std::vector<std::span<std::byte>> target{found};
    good.read(target);
    EXPECT_EQ(found, memory);
  });
}

TEST_P(AggregateFailures, ShortAndRepeatedTransfersAreContinued) {
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 16384, .aggregators = 2});
    const Faults faults{.seed = 5, .again_rate = 0.3, .short_rate = 0.5};
    File file = File::create(plan, folder.file("short"), {.cache_mode = CacheMode::buffered, .faults = faults});
    const std::vector<std::span<const std::byte>> spans{memory};
    file.write(spans);
    std::vector<std::byte> found(memory.size());
    const std::vector<std::span<std::byte>> target{found};
    file.read(target);
    EXPECT_EQ(found, memory);
  });
}

TEST_P(AggregateFailures, AFailedFlushIsToldToAll) {
  const std::vector<std::string> texts = told<StorageError>(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size));
    File file = File::create(plan, folder.file("flush"), {.durable = true, .faults = {.flush_error_at = 0}});
    file.write(std::vector<std::span<const std::byte>>{memory});
  });
  expect_all_alike(texts, {"flush by rank ", folder.file("flush")});
}

TEST_P(AggregateFailures, AFileThatEndsEarlyIsToldToAll) {
  const std::vector<std::string> texts = told<StorageError>(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192});
    File file = File::create(plan, folder.file("early"), {.size_bytes = 30000});
    std::vector<std::byte> found(memory.size());
    file.read(std::vector<std::span<std::byte>>{found});
  });
  expect_all_alike(texts, {"read by rank ", folder.file("early"), "the file ends early"});
}

TEST_P(AggregateFailures, AFileThatCannotBeMadeIsToldToAll) {
  const std::string nowhere = folder.file("none/file");
  expect_all_alike(told<StorageError>(ranks, size,
                                      [&](int rank, outcrop_transport &transport) {
                                        File::create(Plan::make(transport, in_turns(rank, size)), nowhere);
                                      }),
                   {"create by rank 0", nowhere});
  expect_all_alike(told<StorageError>(ranks, size,
                                      [&](int rank, outcrop_transport &transport) {
                                        File::open(Plan::make(transport, in_turns(rank, size)), nowhere);
                                      }),
                   {"open by rank ", nowhere});
}

TEST_P(AggregateFailures, MemoryThatDoesNotFitIsToldToAll) {
  const int last = size - 1;
  const std::vector<std::string> texts = told<InputError>(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192});
    File file = File::create(plan, folder.file("memory"));
    std::span<const std::byte> given(memory);
    if (rank == last) given = given.first(10 * block - 1);
    file.write(std::vector<std::span<const std::byte>>{given});
  });
  expect_all_alike(texts, {"rank " + std::to_string(last), "needs 200000 bytes", "199999"});
}

// If the memory of one rank is too small for a write, the write is refused. Then the bytes of this rank must stay
// unchanged. The test writes to a file, to a stage and to node files. In three cases of the test, ranks send their own
// messages, use a relay, or perform their own I/O.
TEST_P(AggregateFailures, ARefusedWriteLeavesTheBytesOfTheRefusedRankAlone) {
  struct Way {
    FileOptions options;
    bool merged;
    std::uint64_t own_run_bytes;
    int refused;
  };
  const int last = size - 1;
  const FileOptions staged{.stage_folder = folder.file("stage")}, node_files{.node_files = true};
  for (const auto &[options, merged, own_run_bytes, refused] :
       {Way{{}, false, 0, last}, Way{{}, true, 0, 0}, Way{{}, true, 0, last}, Way{{}, false, 1000, 0},
        Way{staged, true, 0, last}, Way{node_files, false, 0, last}}) {
    const PlanOptions of_plan{.buffer_bytes = 8192,
                              .aggregators = 2,
                              .own_run_bytes = own_run_bytes,
                              .elect = [is_merged = merged](const ElectionInputs &inputs) {
                                Election election = elect_by_bytes(inputs);
                                election.merged = is_merged;
                                return election;
                              }};
    const std::vector<std::byte> ones(3 * block, std::byte{1}), twos(3 * block, std::byte{2});
    on_ranks(ranks, size, [&, is_refused = refused, of_file = options](int rank, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, in_turns(rank, size, 3), of_plan);
      File file = File::create(plan, folder.file("refused"), of_file);
      file.write(std::vector<std::span<const std::byte>>{ones});
      const std::span<const std::byte> given = std::span(twos).first(rank == is_refused ? 10 : twos.size());
      EXPECT_THROW(file.write(std::vector<std::span<const std::byte>>{given}), InputError);
      std::vector<std::byte> found(ones.size());
      file.read(std::vector<std::span<std::byte>>{found});
      const auto is_possible = [&](std::byte each) {
        return each == std::byte{1} || (each == std::byte{2} && rank != is_refused);
      };
      EXPECT_TRUE(std::ranges::all_of(found, is_possible)) << "rank " << rank << " of " << is_refused;
      file.write(std::vector<std::span<const std::byte>>{twos});
      file.read(std::vector<std::span<std::byte>>{found});
      EXPECT_EQ(found, twos);
      file.close();
    });
  }
}

// A refused write must not add a step to the index of node files.
TEST_P(AggregateFailures, ARefusedWriteIsNoStepOfNodeFiles) {
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192, .aggregators = 2});
    File file = File::create(plan, folder.file("refused"), {.node_files = true});
    const std::uint64_t step_bytes = static_cast<std::uint64_t>(size) * memory.size();
    file.write(std::vector<std::span<const std::byte>>{memory});
    const std::span<const std::byte> given = std::span(memory).first(rank == 0 ? 10 : memory.size());
    EXPECT_THROW(file.write(std::vector<std::span<const std::byte>>{given}, step_bytes), InputError);
    file.close();
  });
  EXPECT_EQ(merge(folder.file("refused.index"), folder.file("refused")),
            static_cast<std::uint64_t>(size) * memory.size());
}

TEST_P(AggregateFailures, WrongOptionsAndDeclarationsAreToldToAll) {
  const auto with = [&](auto &&act) { return told<InputError>(ranks, size, act); };
  const int last = size - 1;
  expect_all_alike(with([&](int rank, outcrop_transport &transport) {
                     Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 5000});
                   }),
                   {"5000 bytes", "multiple of 4096"});
  expect_all_alike(with([&](int rank, outcrop_transport &transport) {
                     Declaration own = in_turns(rank, size);
                     if (rank == last) own.variables[0][0].dims = {{3, block / 2, 0}};
                     Plan::make(transport, own);
                   }),
                   {"rank " + std::to_string(last), "overlap"});
  if (size > 1)
    expect_all_alike(with([&](int rank, outcrop_transport &transport) {
                       Plan::make(transport, in_turns(rank, size), {.aggregators = rank == last ? 2u : 1u});
                     }),
                     {"ranks 0 and " + std::to_string(last), "different options"});
}

TEST_P(AggregateFailures, OverlapsAreToldToAllWithBothRanks) {
  const int last = size - 1;
  for (const std::uint64_t own_run_bytes : {0, 1000}) {
    const std::vector<std::string> texts = told<InputError>(ranks, size, [&](int rank, outcrop_transport &transport) {
      Declaration own = in_turns(rank, size);
      if (rank == last) own.variables.push_back({contiguous(block - 1, 1)});  // the last byte of rank 0's first block
      Plan::make(transport, own, {.aggregators = 3, .own_run_bytes = own_run_bytes});
    });
    const std::string who = size > 1 ? "ranks 0 and " + std::to_string(last) : "rank 0 has declared it twice";
    expect_all_alike(texts, {"byte 19999", who});
  }
}

TEST_P(AggregateFailures, ReadersMayShareBytes) {
  on_ranks(ranks, size, [&](int, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(0, 1), {.buffer_bytes = 8192, .reading_only = true});
    File file = File::create(plan, folder.file("shared"), {.size_bytes = 10 * block});
    EXPECT_THROW(file.write(std::vector<std::span<const std::byte>>{memory}), InputError);
    std::vector<std::byte> found = memory;
    file.read(std::vector<std::span<std::byte>>{found});
    EXPECT_EQ(found, std::vector<std::byte>(10 * block));
  });
}

TEST(AggregateFailure, MissingMemoryIsReportedLikeOtherFailures) {
  const Failure failure = attempt(Failure::write, 3, [] { throw std::bad_alloc(); });
  EXPECT_THROW(failure.raise(), InputError);
  EXPECT_NE(std::string(failure.text).find("no memory"), std::string::npos);
  EXPECT_EQ(failure.rank, 3);
}

TEST_P(AggregateFailures, ALostConnectionEndsTheWaiting) {
  if (GetParam().per_node == 0 || size < 3) GTEST_SKIP() << "one node needs no connection";
  const std::vector<std::string> texts =
      told<CommunicationError>(ranks, size, [&](int rank, outcrop_transport &transport) {
        const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192});
        File file = File::create(plan, folder.file("lost"));
        // ranks of the last node do not call the following functions
        if (rank / GetParam().per_node == (size - 1) / GetParam().per_node) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          ranks.fail();
          throw CommunicationError("gone");
        }
        file.write(std::vector<std::span<const std::byte>>{memory});
      });
  EXPECT_EQ(std::ranges::count(texts, ""), 0);
}

TEST_P(AggregateFailures, RanksThatNeverComeAreNotWaitedForLongerThanIsSaid) {
  if (GetParam().per_node == 0 || size < 3) GTEST_SKIP() << "ranks of one node see each other";
  const auto is_lost = [&](int rank) { return rank / GetParam().per_node == (size - 1) / GetParam().per_node; };
  const std::vector<std::string> texts =
      told<CommunicationError>(ranks, size, [&](int rank, outcrop_transport &transport) {
        const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192});
        File file = File::create(plan, folder.file("lost"));
        transport.seconds_most = 0.2;
        // this barrier waits, because ranks of other nodes do not call it
        if (is_lost(rank)) return Link(transport).barrier();
        file.write(std::vector<std::span<const std::byte>>{memory});
      });
  for (const std::string &text : texts) EXPECT_NE(text.find("seconds_most"), std::string::npos) << text;
}

// This test checks that all ranks get an error if a file system is full. Each write to the device /dev/full fails
// because the device is full.
TEST(AggregateFull, AFullFileSystemIsToldToAll) {
  const char *full = "/dev/full";
  if (access(full, W_OK) != 0) GTEST_SKIP() << "there is no " << full;
  ThreadRanks ranks(4);
  const std::vector<std::byte> memory(10 * block, std::byte{1});
  const std::vector<std::string> texts = told<StorageError>(ranks, 4, [&](int rank, outcrop_transport &transport) {
    const Plan plan = Plan::make(transport, in_turns(rank, 4), {.buffer_bytes = 8192});
    File file = File::open(plan, full, true, {.cache_mode = CacheMode::buffered});
    file.write(std::vector<std::span<const std::byte>>{memory});
  });
  expect_all_alike(texts, {"write by rank ", full, "No space left"});
}

// The lists of stages have a maximum size, and the index of node files also has a maximum size. If a step has too many
// contiguous runs for a list or an index, no file must be made.
TEST(AggregateLists, TooManyRunsAreRefusedBeforeAFileIsMade) {
  const Folder folder;
  const FileOptions staged{.stage_folder = folder.file("stage")}, node_files{.node_files = true};
  for (const FileOptions &options : {staged, node_files}) {
    ThreadRanks ranks(1);
    const std::vector<std::string> texts = told<InputError>(ranks, 1, [&](int, outcrop_transport &transport) {
      const Plan plan = Plan::make(transport, {{{strided(0, 4'000'000, 1, 2)}}});
      File::create(plan, folder.file("runs"), options);
    });
    expect_all_alike(texts, {"4000000 contiguous r", "declare longer contiguous extents"});
    for (const char *name : {"runs", "runs.index", "runs.node-0"})
      EXPECT_FALSE(std::filesystem::exists(folder.file(name))) << name;
  }
}

TEST(AggregateNeighbours, ADeadProcessIsNoticed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) < 0 ? 1 : 0);  // read() returns when the other end is closed
  }
  close(ends[0]);
  const std::vector<int> processes{getpid(), child};
  const ProcessWatch watch(processes);
  EXPECT_EQ(watch.ended(), -1);
  close(ends[1]);
  int ended = -1;
  // The child has ended, but stays a zombie until waitpid() is called. watch.ended() must report the end of the child.
  for (int turn = 0; turn < 1000 && ended < 0; ++turn) {
    ended = watch.ended();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ended, 1);
  waitpid(child, nullptr, 0);
}

TEST(AggregateEventCount, LosesNoNotificationBetweenTestAndWait) {
  void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  EventCount &ping = static_cast<EventCount *>(shared)[0], &pong = static_cast<EventCount *>(shared)[1];
  auto *turns = reinterpret_cast<std::atomic<int> *>(static_cast<std::byte *>(shared) + 1024);
  const auto wait_for = [&](EventCount &event, int turn) {
    for (int waits = 0; *turns != turn && waits < 100; ++waits) {
      const std::uint32_t seen = event.count();
      if (*turns != turn) event.wait(seen, 1000000);
    }
    return *turns == turn;
  };
  constexpr int rounds = 2000;
  const pid_t child = fork();
  if (child == 0) {
    bool good = true;
    for (int i = 0; i < rounds && good; ++i) {
      good = wait_for(ping, 2 * i + 1);
      ++*turns;
      pong.notify();
    }
    _exit(good ? 0 : 1);
  }
  for (int i = 0; i < rounds; ++i) {
    ++*turns;
    ping.notify();
    ASSERT_TRUE(wait_for(pong, 2 * i + 2)) << i;
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  munmap(shared, 4096);
}

}  // namespace
}  // namespace outcrop::aggregate
