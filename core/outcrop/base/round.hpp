// Rounding of byte counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outcrop {

/// The smallest multiple of `unit` that is not below `value`.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

/// The largest multiple of `unit` that is not above `value`.
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }

}  // namespace outcrop
