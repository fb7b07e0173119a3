// These tests check the team of threads. Every member of the team must run every job once. When run() returns, the
// caller must see the results of the job.
#include <gtest/gtest.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "outcrop/exec/team.hpp"

namespace outcrop {
namespace {

TEST(Team, EveryMemberRunsEveryJobOnce) {
  for (unsigned size : {1u, 2u, 3u, 5u}) {
    Team team(size);
    ASSERT_EQ(team.size(), size);
    // no atomics are needed: each member writes its own element, and run() makes the elements visible
    std::vector<long> runs(size, 0);
    constexpr long jobs = 500;
    for (long job = 1; job <= jobs; ++job) {
      team.run([&](unsigned member) { ++runs[member]; });
      for (unsigned member = 0; member < size; ++member) ASSERT_EQ(runs[member], job);
    }
  }
}

TEST(Team, TheCallerIsMemberZero) {
  Team team(3);
  std::thread::id zero;
  team.run([&](unsigned member) {
    if (member == 0) zero = std::this_thread::get_id();
  });
  EXPECT_EQ(zero, std::this_thread::get_id());
}

// The members of the team sleep if no job arrives for some time. The next job must wake all sleeping members.
TEST(Team, WakesUpAfterAPause) {
  Team team(3);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> ran{0};
    team.run([&](unsigned) { ran.fetch_add(1); });
    EXPECT_EQ(ran.load(), 3);
  }
}

// The caller of run() sleeps if another member takes a long time for the job. The member that finishes last must wake
// the caller of run().
TEST(Team, WaitsForASlowMember) {
  Team team(2);
  bool finished = false;
  team.run([&](unsigned member) {
    if (member == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    finished = true;
  });
  EXPECT_TRUE(finished);
}

TEST(Team, EndsWithoutAnyJob) {
  for (int round = 0; round < 50; ++round) Team team(4);
}

TEST(Team, HandsOutEveryIndexOnce) {
  Team team(3);
  for (long count : {0L, 1L, 2L, 1000L}) {
    std::vector<int> seen(static_cast<std::size_t>(count), 0);
    team.for_each(count, [&](long i) { ++seen[static_cast<std::size_t>(i)]; });
    for (int times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(Team, TouchesEveryByteAndNoOther) {
  Team team(2);
  const std::size_t size = (std::size_t{4} << 20) + 123;
  std::vector<std::byte> memory(size + 2, std::byte{7});
  team.touch(memory.data() + 1, size);
  EXPECT_EQ(memory.front(), std::byte{7});
  EXPECT_EQ(memory.back(), std::byte{7});
  for (std::size_t i = 1; i <= size; ++i) ASSERT_EQ(memory[i], std::byte{0});
}

#if defined(__SSE__)
// The thread that calls run() can load a library that was compiled with fast-math options. Such a library makes the
// thread treat subnormal numbers as zeros. Such a library must not change the results of a job.
TEST(Team, ComputesWithSubnormalNumbersWhateverTheCallerDoes) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // the bits that set subnormal results and subnormal operands to zero
  Team team(3);
  std::atomic<int> kept{0};
  team.run([&](unsigned) {
    volatile float tiny = 1e-38F;
    tiny = tiny * 0.01F;
    if (tiny > 0) ++kept;
  });
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(kept.load(), 3);
  EXPECT_EQ(after & 0x8040, 0x8040u);
}
#endif

}  // namespace
}  // namespace outcrop
