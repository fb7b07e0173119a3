// What a rank has of a domain.
#pragma once

#include <cstdint>

namespace outcrop::aggregate {

/// Rank `rank` has that many bytes in that domain.
struct Tally {
  std::uint32_t domain = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;
};

}  // namespace outcrop::aggregate
