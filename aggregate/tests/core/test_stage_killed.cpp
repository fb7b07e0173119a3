// These tests check that staged steps survive kill -9 at any point of staging and of draining. Each turn starts a
// process, and kills it after some system calls. In each turn, the process may make more system calls than in the
// previous turn.
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t target_bytes = 40'000, run_bytes = 10'000;
constexpr int calls_most = 5000, cannot_be_traced = 77;

enum class End { killed, over, untraceable, failed };

// Runs act() in a new process. Counts each start and each end of a system call of this process. Kills the process when
// this count reaches `stops`.
End killed_at(int stops, const std::function<void()> &act) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(cannot_be_traced);
    raise(SIGSTOP);
    try {
      act();
    } catch (const std::exception &) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    if (stops-- == 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return End::killed;
    }
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == cannot_be_traced) return End::untraceable;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? End::over : End::failed;
}

class StageKilled : public ::testing::Test {
 protected:
  StageKilled() {
    for (std::size_t i = 0; i < target_bytes; ++i)
      values_[i] = static_cast<std::byte>(i % run_bytes < 8000 ? i * 7 + 1 : 0);  // with holes
  }
  std::string target() const { return folder_.file("target"); }
  std::string stage() const { return folder_.file("stage"); }
  std::string kept() const { return folder_.file("kept"); }

  void start_anew() const {
    for (const std::string &path : {target(), stage()}) std::filesystem::remove_all(path);
    outcrop::File::create(target(), target_bytes);
  }

  void stage_step() const {
    Stage staged({stage(), target(), 0, 0});
    staged.begin(7, target_bytes, 4);
    for (std::size_t at = 0; at < target_bytes; at += run_bytes) staged.append(at, {values_.data() + at, 8000});
    staged.seal();
    _exit(0);  // the process ends without waiting for the drain
  }

  bool target_is(const std::vector<std::byte> &expected) const {
    std::vector<std::byte> found(target_bytes);
    outcrop::File::open(target(), false, false).read(0, found.data(), found.size());
    return found == expected;
  }
  bool target_is_whole() const { return target_is(values_); }
  bool target_is_untouched() const { return target_is(std::vector<std::byte>(target_bytes)); }

  bool has(const std::string &name) const { return std::filesystem::exists(stage() + "/step-7.writer-0." + name); }
  bool is_empty() const { return !has("data") && !has("list") && !has("done") && !has("list.tmp"); }

  const Folder folder_{std::filesystem::current_path().string()};
  std::vector<std::byte> values_ = std::vector<std::byte>(target_bytes);
};

TEST_F(StageKilled, AtAnyCallOfStagingTheStepIsInTheFileOrLostAndNamed) {
  int whole = 0, lost = 0;
  End end = End::killed;
  for (int stops = 1; end == End::killed; ++stops) {
    start_anew();
    end = killed_at(stops, [&] { stage_step(); });
    if (end == End::untraceable) GTEST_SKIP() << "no process may be traced";
    ASSERT_TRUE(stops < calls_most && end != End::failed) << stops;
    const bool was_staged = has("list") || has("done"), had_begun = has("data");
    const Recovery recovery = std::filesystem::exists(stage()) ? recover_stage(stage(), target()) : Recovery{};
    EXPECT_TRUE(recovery.failed.empty() && recovery.busy.empty()) << stops;
    EXPECT_TRUE(is_empty()) << stops;
    EXPECT_EQ(recovery.lost.size(), had_begun && !was_staged ? 1U : 0U) << stops;
    ASSERT_TRUE(was_staged ? target_is_whole() : target_is_untouched()) << stops;
    ++(was_staged ? whole : lost);
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(lost, 10) << "the kills must hit different calls";
}

TEST_F(StageKilled, AtAnyCallOfADrainTheNextOneEndsIt) {
  start_anew();
  {
    Stage staged({stage(), target(), 0, 0});
    staged.begin(7, target_bytes, 4);
    for (std::size_t at = 0; at < target_bytes; at += run_bytes) staged.append(at, {values_.data() + at, 8000});
    staged.seal();
    staged.finish();
    std::filesystem::copy(stage(), kept());
  }
  std::filesystem::rename(kept() + "/step-7.writer-0.done", kept() + "/step-7.writer-0.list");
  int killed_before_done = 0;
  End end = End::killed;
  for (int stops = 1; end == End::killed; ++stops) {
    start_anew();
    std::filesystem::copy(kept(), stage());
    end = killed_at(stops, [&] { recover_stage(stage(), target()); });
    if (end == End::untraceable) GTEST_SKIP() << "no process may be traced";
    ASSERT_TRUE(stops < calls_most && end != End::failed) << stops;
    killed_before_done += has("list") ? 1 : 0;
    const Recovery recovery = recover_stage(stage(), target());
    EXPECT_TRUE(recovery.failed.empty() && recovery.lost.empty() && recovery.busy.empty()) << stops;
    EXPECT_TRUE(is_empty()) << stops;
    ASSERT_TRUE(target_is_whole()) << stops;
  }
  EXPECT_GT(killed_before_done, 10) << "the kills must hit different calls";
}

}  // namespace
}  // namespace outcrop::aggregate
