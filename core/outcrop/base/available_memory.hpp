// The memory that this process can still allocate. The system kills a process that needs more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

namespace outcrop {

/// The names of files, and of lines in the file memory.stat, in one version of control groups.
struct MemoryGroupFiles {
  const char *limit, *usage, *inactive, *active;
};

/// Returns the number of further bytes that one control group allows. Cached files count as free memory, because the
/// system drops these files when a program needs memory. If no limit is set, returns the maximum of the type.
inline std::uint64_t free_bytes_of_group(const std::string &folder, const MemoryGroupFiles &names) {
  constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  // In control groups of version 1, a value of at least this size means that there is no limit.
  constexpr std::uint64_t max_limit = std::uint64_t{1} << 60;
  const auto number_in = [&folder](const char *name, std::uint64_t otherwise) {
    std::ifstream file(folder + "/" + name);
    std::uint64_t number = 0;
    return file >> number ? number : otherwise;  // the file can be missing, or contain a word such as "max"
  };
  const std::uint64_t limit = number_in(names.limit, unlimited);
  if (limit >= max_limit) return unlimited;
  std::ifstream file(folder + "/memory.stat");
  std::uint64_t cached = 0, count = 0;
  for (std::string key; file >> key >> count;)
    if (key == names.inactive || key == names.active) cached += count;
  const std::uint64_t usage = number_in(names.usage, 0), used = usage - std::min(usage, cached);
  return limit - std::min(limit, used);
}

/// Returns the number of further bytes that the control groups (version 1 or 2) of this process allow it to allocate.
/// If no limit is set, returns the maximum of the type. `own` is the file that lists the groups of the process. The
/// folders of the groups are below `root`. src/outcrop/tiers/discover.py computes the same number.
inline std::uint64_t group_free_bytes(const std::string &own = "/proc/self/cgroup",
                                      const std::string &root = "/sys/fs/cgroup") {
  constexpr MemoryGroupFiles first{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                   "total_active_file"};
  constexpr MemoryGroupFiles second{"memory.max", "memory.current", "inactive_file", "active_file"};
  std::ifstream groups(own);
  std::uint64_t free = std::numeric_limits<std::uint64_t>::max();
  for (std::string number, controllers, path;
       std::getline(groups, number, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
    if (!controllers.empty() && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const std::string top = controllers.empty() ? root : root + "/memory";
    for (;; path.resize(path.rfind('/'))) {  // from the group up to the top of the tree of groups
      free = std::min(free, free_bytes_of_group(top + path, controllers.empty() ? second : first));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return free;
}

/// Returns the number of bytes that this process can allocate. The number excludes swap space, and respects the limits
/// of the control groups. If the system does not report the number, returns the maximum of the type.
inline std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::uint64_t kibibytes = 0;
  for (std::string word; file >> word;)
    if (word == "MemAvailable:" && file >> kibibytes) return std::min(kibibytes << 10, group_free_bytes());
  return group_free_bytes();
}

}  // namespace outcrop
