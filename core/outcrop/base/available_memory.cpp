#include "outcrop/base/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

namespace outcrop {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
// In control groups of version 1, a value of at least this size means that there is no limit.
constexpr std::uint64_t max_limit = std::uint64_t{1} << 60;

// The names of files, and of lines in the file memory.stat, in one version of control groups.
struct Version {
  std::string limit, usage, inactive, active;
};

const Version first{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
const Version second{"memory.max", "memory.current", "inactive_file", "active_file"};

// Returns the number in a file. If the file is missing, or contains a word such as "max", returns `otherwise`.
std::uint64_t number_in(const std::string &path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : otherwise;
}

std::uint64_t cached_bytes(const std::string &folder, const Version &version) {
  std::ifstream file(folder + "/memory.stat");
  std::uint64_t bytes = 0, count = 0;
  for (std::string key; file >> key >> count;)
    if (key == version.inactive || key == version.active) bytes += count;
  return bytes;
}

std::uint64_t free_bytes(const std::string &folder, const Version &version) {
  const std::uint64_t limit = number_in(folder + "/" + version.limit, unlimited);
  if (limit >= max_limit) return unlimited;
  const std::uint64_t usage = number_in(folder + "/" + version.usage, 0), cached = cached_bytes(folder, version);
  const std::uint64_t used = usage - std::min(usage, cached);
  return limit - std::min(limit, used);
}

std::uint64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (word == "MemAvailable:") {
      std::uint64_t kib = 0;
      file >> kib;
      return kib << 10;
    }
  return unlimited;
}

}  // namespace

std::uint64_t group_free_bytes(const std::string &own, const std::string &root) {
  std::ifstream groups(own);
  std::uint64_t free = unlimited;
  for (std::string number, controllers, path;
       std::getline(groups, number, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
    if (!controllers.empty() && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const Version &version = controllers.empty() ? second : first;
    const std::string top = controllers.empty() ? root : root + "/memory";
    for (;; path.resize(path.rfind('/'))) {  // from the group up to the top of the tree of groups
      free = std::min(free, free_bytes(top + path, version));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return free;
}

std::uint64_t available_bytes() { return std::min(available_on_machine(), group_free_bytes()); }

}  // namespace outcrop
