// These tests check that buffers need no more memory than the control groups of the process allow. The system kills a
// process that needs more memory than its control groups allow.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

bool write_text(const std::string &path, const std::string &text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// Writes files such as those of a control group. If `is_first` is true, the files have the names of control groups of
// version 1. Otherwise the files have the names of version 2.
void make_group(const std::string &folder, bool is_first, const std::string &limit, int used, int cached) {
  std::filesystem::create_directories(folder);
  const std::string key = is_first ? "total_" : "";
  write_text(folder + (is_first ? "/memory.limit_in_bytes" : "/memory.max"), limit + "\n");
  write_text(folder + (is_first ? "/memory.usage_in_bytes" : "/memory.current"), std::to_string(used) + "\n");
  write_text(folder + "/memory.stat", "cache 9\n" + key + "inactive_file " + std::to_string(cached) + "\n" + key +
                                          "active_file " + std::to_string(cached) + "\n");
}

TEST(AggregateMemory, TheGroupThatLeavesLeastCountsWithoutItsCachedFiles) {
  for (const bool is_first : {true, false}) {
    const Folder folder;
    const std::string top = folder.file(is_first ? "memory" : ""), none = is_first ? "9223372036854771712" : "max";
    write_text(folder.file("own"), is_first ? "5:cpu,cpuacct:/\n4:hugetlb,memory:/job/step\n" : "0::/job/step\n");
    EXPECT_EQ(group_free_bytes(folder.file("own"), folder.file("")), unlimited) << "there are no files";
    make_group(top + "/job/step", is_first, none, 50, 0);
    EXPECT_EQ(group_free_bytes(folder.file("own"), folder.file("")), unlimited) << "there is no limit";
    make_group(top + "/job", is_first, "1000", 500, 100);
    EXPECT_EQ(group_free_bytes(folder.file("own"), folder.file("")), 700U) << "that of a group around it";
    make_group(top, is_first, "900", 899, 0);
    EXPECT_EQ(group_free_bytes(folder.file("own"), folder.file("")), 1U) << "that of the top";
    make_group(top + "/job/step", is_first, "30", 50, 0);
    EXPECT_EQ(group_free_bytes(folder.file("own"), folder.file("")), 0U) << "more is used than may be";
  }
  EXPECT_EQ(group_free_bytes("/no/such/file", "/"), unlimited);
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
