#include "outcrop/exec/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace outcrop {
namespace {

constexpr int lane_bits = 32;
constexpr std::uint64_t lane_mask = (std::uint64_t{1} << lane_bits) - 1;
constexpr int mantissa_bits = 52;
constexpr int carry_bits = std::bit_width(ExactSum::at_once) - 1;

// Of absolute values the order of the bits is that of the numbers; infinity and what is no number come last.
using Bits = std::int64_t;
constexpr Bits sign_mask = ~(Bits{1} << 63);

inline __attribute__((always_inline)) Bits largest_of(const double *values, std::size_t count) {
  Bits largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<Bits>(values[i]) & sign_mask);
  return largest;
}

// Adding `unit` and taking it away again rounds to a bit of its own. Neither that nor anything below it rounds any further.
inline __attribute__((always_inline)) double take_high_parts(double *values, std::size_t count, double unit) {
  constexpr std::size_t width = 8;
  double sums[width] = {};
  std::size_t i = 0;
  for (; i + width <= count; i += width)
    for (std::size_t j = 0; j < width; ++j) {
      const double high = (values[i + j] + unit) - unit;
      values[i + j] -= high;
      sums[j] += high;
    }
  for (; i < count; ++i) {
    const double high = (values[i] + unit) - unit;
    values[i] -= high;
    sums[0] += high;
  }
  for (std::size_t j = 1; j < width; ++j) sums[0] += sums[j];
  return sums[0];
}

// Wider vectors change no bit.
struct Steps {
  Bits (*largest)(const double *, std::size_t);
  double (*take_high)(double *, std::size_t, double);
};

Bits largest_plain(const double *values, std::size_t count) { return largest_of(values, count); }
double take_high_plain(double *values, std::size_t count, double unit) { return take_high_parts(values, count, unit); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) Bits largest_avx2(const double *values, std::size_t count) {
  return largest_of(values, count);
}
__attribute__((target("avx2"))) double take_high_avx2(double *values, std::size_t count, double unit) {
  return take_high_parts(values, count, unit);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) Bits largest_avx512(const double *values,
                                                                               std::size_t count) {
  return largest_of(values, count);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) double take_high_avx512(double *values, std::size_t count,
                                                                                   double unit) {
  return take_high_parts(values, count, unit);
}
#endif

Steps find_steps() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {largest_avx512, take_high_avx512};
  if (__builtin_cpu_supports("avx2")) return {largest_avx2, take_high_avx2};
#endif
  return {largest_plain, take_high_plain};
}

// 2^exponent, for normal numbers.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<Bits>(exponent + 1023) << mantissa_bits); }

}  // namespace

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    special_ += value;
    return;
  }
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

void ExactSum::add(double *values, std::size_t count) {
  assert(count <= at_once);
  constexpr int lowest = -900, highest = 1023 - carry_bits;  // no bit of a cut is subnormal, no sum overflows
  static const Steps steps = find_steps();
  while (const Bits largest = steps.largest(values, count)) {
    const int above = static_cast<int>(largest >> mantissa_bits) - 1022;  // all are below 2^above
    if (above < lowest || above > highest) {
      for (std::size_t i = 0; i < count; ++i) add(values[i]);
      return;
    }
    add(steps.take_high(values, count, power_of_two(above + carry_bits)));
  }
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
