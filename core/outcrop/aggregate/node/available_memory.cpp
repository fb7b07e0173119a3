#include "outcrop/aggregate/node/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "outcrop/aggregate/node/memory_groups.hpp"

namespace outcrop::aggregate {
namespace {

std::uint64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (word == "MemAvailable:") {
      std::uint64_t kib = 0;
      file >> kib;
      return kib << 10;
    }
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

std::uint64_t available_bytes() { return std::min(available_on_machine(), group_free_bytes()); }

}  // namespace outcrop::aggregate
