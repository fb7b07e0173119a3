#include "outcrop/aggregate/available_memory.hpp"

#include <fstream>
#include <string>

namespace outcrop::aggregate {

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (word == "MemAvailable:") {
      std::uint64_t kib = 0;
      file >> kib;
      return kib << 10;
    }
  return ~std::uint64_t{0};
}

}  // namespace outcrop::aggregate
