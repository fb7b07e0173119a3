#include "outcrop/exec/exact_sum.hpp"

#include <bit>
#include <cmath>

namespace outcrop {
namespace {

constexpr int lane_bits = 32;
constexpr std::uint64_t lane_mask = (std::uint64_t{1} << lane_bits) - 1;

}  // namespace

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    special_ += value;
    return;
  }
  constexpr int mantissa_bits = 52;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << mantissa_bits) - 1);
  const auto exponent = static_cast<unsigned>(bits >> mantissa_bits) & 0x7ffu;
  // value = mantissa * 2^(shift - 1074); subnormal numbers have no leading one, and the exponent of the smallest normal ones.
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | std::uint64_t{1} << mantissa_bits;
  const unsigned shift = exponent == 0 ? 0 : exponent - 1;
  const unsigned lane = shift / lane_bits, within = shift % lane_bits;
  const std::uint64_t low = (mantissa & lane_mask) << within, high = (mantissa >> lane_bits) << within;
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  lanes_[lane] += sign * static_cast<std::int64_t>(low & lane_mask);
  lanes_[lane + 1] += sign * static_cast<std::int64_t>((low >> lane_bits) + (high & lane_mask));
  lanes_[lane + 2] += sign * static_cast<std::int64_t>(high >> lane_bits);
  if (++adds_ == adds_most) carry();
}

void ExactSum::add(const ExactSum &other) {
  ExactSum carried = other;
  carried.carry();
  for (std::size_t i = 0; i < lanes; ++i) lanes_[i] += carried.lanes_[i];
  special_ += carried.special_;
  if (++adds_ == adds_most) carry();
}

// Every lane but the last is at least 0 and below 2^32 after that.
void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < lanes; ++i) {
    lanes_[i + 1] += lanes_[i] >> lane_bits;
    lanes_[i] &= static_cast<std::int64_t>(lane_mask);
  }
  adds_ = 0;
}

std::vector<std::byte> ExactSum::integer() const {
  ExactSum carried = *this;
  carried.carry();
  std::vector<std::byte> bytes;
  const auto append = [&](std::int64_t lane, int count) {
    for (int i = 0; i < count; ++i)
      bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(lane) >> (8 * i)));
  };
  for (std::size_t i = 0; i + 1 < lanes; ++i) append(carried.lanes_[i], lane_bits / 8);
  append(carried.lanes_[lanes - 1], 8);
  return bytes;
}

}  // namespace outcrop
