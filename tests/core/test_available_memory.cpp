// These tests check the number of bytes that a process can allocate within the limits of its control groups.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>

#include "outcrop/base/available_memory.hpp"

namespace outcrop {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// A folder for a test. The destructor removes the folder.
struct Folder {
  Folder() : path(testing::TempDir() + "/outcrop-memory-XXXXXX") {
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder for the test: " + path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::string path;
};

void write_text(const std::string &path, const std::string &text) {
  std::ofstream file(path);
  ASSERT_TRUE(file << text << std::flush);
}

// Writes files like those of a control group. If `is_first` is true, the files have the names of version 1. Otherwise
// they have the names of version 2.
void make_group(const std::string &folder, bool is_first, const std::string &limit, int used, int cached) {
  std::filesystem::create_directories(folder);
  const std::string key = is_first ? "total_" : "";
  write_text(folder + (is_first ? "/memory.limit_in_bytes" : "/memory.max"), limit + "\n");
  write_text(folder + (is_first ? "/memory.usage_in_bytes" : "/memory.current"), std::to_string(used) + "\n");
  write_text(folder + "/memory.stat", "cache 9\n" + key + "inactive_file " + std::to_string(cached) + "\n" + key +
                                          "active_file " + std::to_string(cached) + "\n");
}

TEST(AvailableMemory, TheGroupThatLeavesLeastCountsWithoutItsCachedFiles) {
  for (const bool is_first : {true, false}) {
    const Folder folder;
    const std::string own = folder.path + "/own", root = folder.path;
    const std::string top = is_first ? root + "/memory" : root, none = is_first ? "9223372036854771712" : "max";
    write_text(own, is_first ? "5:cpu,cpuacct:/\n4:hugetlb,memory:/job/step\n" : "0::/job/step\n");
    EXPECT_EQ(group_free_bytes(own, root), unlimited) << "there are no files";
    make_group(top + "/job/step", is_first, none, 50, 0);
    EXPECT_EQ(group_free_bytes(own, root), unlimited) << "there is no limit";
    make_group(top + "/job", is_first, "1000", 500, 100);
    EXPECT_EQ(group_free_bytes(own, root), 700U) << "that of a group around it";
    make_group(top, is_first, "900", 899, 0);
    EXPECT_EQ(group_free_bytes(own, root), 1U) << "that of the top";
    make_group(top + "/job/step", is_first, "30", 50, 0);
    EXPECT_EQ(group_free_bytes(own, root), 0U) << "more is used than may be";
  }
  EXPECT_EQ(group_free_bytes("/no/such/file", "/"), unlimited);
}

}  // namespace
}  // namespace outcrop
