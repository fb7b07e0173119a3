#include "outcrop/aggregate/sinks/manner.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "outcrop/aggregate/node/available_memory.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// Part of the available memory that a step may take in the page cache: systems begin to hold writers back at 15 %.
constexpr std::uint64_t ample = 8;

}  // namespace

bool has_ample_room(std::uint64_t node_bytes) { return node_bytes <= available_bytes() / ample; }

Manner agree_on_manner(const Link &link, const Manner &mine) {
  const std::vector<Manner> all = link.gather(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank].staged != all[0].staged || all[rank].node_files != all[0].node_files)
      throw InputError("ranks 0 and " + std::to_string(rank) +
                       " differ in whether they stage or write node files; give all ranks the same");
  Manner agreed = mine;
  agreed.ample_room = std::ranges::all_of(all, &Manner::ample_room);
  return agreed;
}

}  // namespace outcrop::aggregate
