// What the memory of a tier is made of, on this node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace outcrop::aggregate {

struct Medium {
  std::string tier = "dram";                   ///< its name
  std::vector<std::uint32_t> numa_nodes = {};  ///< memory is bound to these; none: where the system puts it
  std::string folder = {};                     ///< a file there is mapped instead; empty: memory
};

/// "ordinary memory", "memory of NUMA node 2", "a file in /local/nvme".
std::string where(const Medium &medium);

}  // namespace outcrop::aggregate
