// These tests check that no rank waits forever for a stuck rank. A stuck rank is alive, but does nothing. The waiting
// ranks must fail after the time that the setting seconds_most gives.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t block = 20000, count = 20;
constexpr double seconds_most = 0.2;
constexpr auto guard = std::chrono::seconds(60);  // the maximum time of a test

Declaration in_turns(int rank, int size) {
  const auto ranks = static_cast<std::uint64_t>(size), number = static_cast<std::uint64_t>(rank);
  return {{{strided(number * block, count, block, ranks * block)}}};
}

struct Layout {
  int size, per_node;
};

// The operations of the test, in the order in which the ranks call them. Each case of the test gives the first
// operation in which the stuck rank takes no part.
enum class Part { plan, create, write, begin, read, staged, flush, close };

struct Case {
  Layout layout;
  Part stuck_before;
  int stuck;  // the number of the stuck rank
};

std::string name_of(const ::testing::TestParamInfo<Case> &info) {
  static constexpr const char *names[] = {"Plan", "Create", "Write", "Begin", "Read", "Staged", "Flush", "Close"};
  const Case &each = info.param;
  return std::string(names[static_cast<int>(each.stuck_before)]) + "Of" + std::to_string(each.layout.size) + "By" +
         std::to_string(each.layout.per_node) + "Stuck" + std::to_string(each.stuck);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Layout layout : {Layout{5, 0}, Layout{6, 2}})
    for (int part = 0; part <= static_cast<int>(Part::close); ++part)
      for (const int stuck : {0, layout.size - 1}) cases.push_back({layout, static_cast<Part>(part), stuck});
  return cases;
}

class AggregateDeadlines : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Everywhere, AggregateDeadlines, ::testing::ValuesIn(all_cases()), name_of);

TEST_P(AggregateDeadlines, AStuckRankDoesNotKeepTheOthers) {
  const auto [layout, stuck_before, stuck] = GetParam();
  const int size = layout.size;
  const Folder folder;
  ThreadRanks ranks(size, layout.per_node);
  std::atomic<int> ended{0};
  std::atomic<bool> is_late{false};
  std::vector<std::string> told(static_cast<std::size_t>(size));
  // Returns false if this rank is the stuck rank. On the stuck rank, the function returns only after all other ranks
  // have ended. Therefore the stuck rank takes no part in the operations of the other ranks.
  const auto goes_on = [&](int rank, Part next) {
    if (rank != stuck || next != stuck_before) return true;
    const auto begin = std::chrono::steady_clock::now();
    while (ended < size - 1) {
      if (std::chrono::steady_clock::now() - begin > guard) {
        is_late = true;
        ranks.fail();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  };
  const std::vector<std::byte> memory(count * block, std::byte{1});
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    transport.seconds_most = seconds_most;
    const std::vector<std::span<const std::byte>> spans{memory};
    std::vector<std::byte> found(memory.size());
    const std::vector<std::span<std::byte>> target{found};
    const auto act = [&] {
      if (!goes_on(rank, Part::plan)) return;
      const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192, .aggregators = 2});
      if (!goes_on(rank, Part::create)) return;
      File file = File::create(plan, folder.file("stuck"));
      File staged = File::create(plan, folder.file("staged"), {.stage_folder = folder.file("stage")});
      if (!goes_on(rank, Part::write)) return;
      file.write(spans);
      if (!goes_on(rank, Part::begin)) return;
      Operation first = file.begin_write(spans, 1 << 22), second = file.begin_read(target);
      first.wait();
      second.wait();
      if (!goes_on(rank, Part::read)) return;
      file.read(target);
      if (!goes_on(rank, Part::staged)) return;
      staged.write(spans);
      if (!goes_on(rank, Part::flush)) return;
      staged.flush();
      if (!goes_on(rank, Part::close)) return;
      staged.close();
    };
    try {
      act();
    } catch (const CommunicationError &error) {
      told[static_cast<std::size_t>(rank)] = error.what();
    }
    ++ended;
  });
  EXPECT_FALSE(is_late);
  for (int rank = 0; rank < size; ++rank) {
    const std::string &text = told[static_cast<std::size_t>(rank)];
    if (rank != stuck) {
      EXPECT_NE(text.find("seconds_most"), std::string::npos) << rank << ": " << text;
    }
  }
}

// The last rank begins a step, but never calls wait(), so its messages stop. This test checks that each other rank
// stops waiting and gets an error.
TEST(AggregateDeadline, ARankThatNeverWaitsDoesNotKeepTheOthers) {
  constexpr int size = 4;
  const Folder folder;
  ThreadRanks ranks(size, 2);
  std::atomic<int> ended{0};
  const std::vector<std::byte> memory(count * block, std::byte{1});
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    transport.seconds_most = seconds_most;
    const std::vector<std::span<const std::byte>> spans{memory};
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192, .aggregators = 2});
    File file = File::create(plan, folder.file("never"));
    Operation begun = file.begin_write(spans);
    const auto begin = std::chrono::steady_clock::now();
    if (rank == size - 1) {
      while (ended < size - 1 && std::chrono::steady_clock::now() - begin < guard)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(ended, size - 1);
      return;
    }
    EXPECT_THROW(begun.wait(), CommunicationError);
    ++ended;
  });
}

// A rank can compute between the start and the end of a step. This test checks that the limit does not include the time
// of this computing.
TEST(AggregateDeadline, ComputingIsNotWaiting) {
  constexpr int size = 3;
  const Folder folder;
  ThreadRanks ranks(size);
  const std::vector<std::byte> memory(count * block, std::byte{1});
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    const std::vector<std::span<const std::byte>> spans{memory};
    const Plan plan = Plan::make(transport, in_turns(rank, size), {.buffer_bytes = 8192, .aggregators = 2});
    File file = File::create(plan, folder.file("computing"));
    Link(transport).barrier();
    transport.seconds_most = 0.05;
    // The other ranks are late. Therefore the copy thread of rank 0 waits longer than the limit.
    if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    Operation begun = file.begin_write(spans);
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 300 : 0));
    transport.seconds_most = 60;
    EXPECT_NO_THROW(begun.wait());
    Link(transport).barrier();
  });
}

}  // namespace
}  // namespace outcrop::aggregate
