// These tests check that buffers need no more memory than the control groups of the process allow. The system kills a
// process that needs more memory than its control groups allow.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/base/available_memory.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

bool write_text(const std::string &path, const std::string &text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// A control group of this machine. is_there() returns false if the test cannot make a group. The destructor removes the
// group.
class Group {
 public:
  explicit Group(std::uint64_t limit_bytes) {
    const bool is_first = std::filesystem::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    folder_ = std::string("/sys/fs/cgroup") + (is_first ? "/memory" : "") + "/outcrop-test-" + std::to_string(getpid());
    std::error_code error;
    is_there_ =
        std::filesystem::create_directory(folder_, error) &&
        write_text(folder_ + (is_first ? "/memory.limit_in_bytes" : "/memory.max"), std::to_string(limit_bytes));
  }
  ~Group() { rmdir(folder_.c_str()); }
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  bool is_there() const { return is_there_; }
  bool enter() const { return write_text(folder_ + "/cgroup.procs", std::to_string(getpid())); }

 private:
  std::string folder_;
  bool is_there_ = false;
};

TEST(AggregateMemory, BuffersThatAGroupHasNoRoomForAreRefused) {
  constexpr std::uint64_t limit = std::uint64_t{64} << 20;
  const Group group(limit);
  if (!group.is_there()) GTEST_SKIP() << "no control group can be made";
  const pid_t child = fork();
  if (child == 0) {
    if (!group.enter()) _exit(2);
    if (available_bytes() > limit) _exit(3);
    try {
      Segment::make(limit + 1, 0);
    } catch (const InputError &) {
      _exit(0);
    }
    _exit(4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no process may be moved to a control group";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace outcrop::aggregate
