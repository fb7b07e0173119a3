#include "outcrop/aggregate/node/memory_groups.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t limit_most = std::uint64_t{1} << 60;  // version 1 writes a number above it for none

// The names that a version has for its files.
struct Version {
  std::string limit, usage, inactive, active;
};

const Version first{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
const Version second{"memory.max", "memory.current", "inactive_file", "active_file"};

// `otherwise` for a file that is not there, or has a word ("max").
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
  if (limit >= limit_most) return unlimited;
  const std::uint64_t usage = number_in(folder + "/" + version.usage, 0), cached = cached_bytes(folder, version);
  const std::uint64_t used = usage - std::min(usage, cached);
  return limit - std::min(limit, used);
}

bool has_memory(const std::string &controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == "memory") return true;
  return false;
}

}  // namespace

std::uint64_t group_free_bytes(const std::string &own, const std::string &root) {
  std::ifstream groups(own);
  std::uint64_t least = unlimited;
  for (std::string number, controllers, path;
       std::getline(groups, number, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
    if (!controllers.empty() && !has_memory(controllers)) continue;
    const Version &version = controllers.empty() ? second : first;
    const std::string top = controllers.empty() ? root : root + "/memory";
    for (;; path.resize(path.rfind('/'))) {  // the group, and those around it
      least = std::min(least, free_bytes(top + path, version));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace outcrop::aggregate
