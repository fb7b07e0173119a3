// Rounding of sizes and offsets to a grain.
#pragma once

#include <cstdint>

namespace outcrop {

/// Smallest multiple of `grain` (> 0) that is not below `value`.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t grain) {
  return (value + grain - 1) / grain * grain;
}

/// Largest multiple of `grain` (> 0) that is not above `value`.
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t grain) { return value / grain * grain; }

}  // namespace outcrop
