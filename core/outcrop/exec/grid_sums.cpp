#include "outcrop/exec/grid_sums.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace outcrop {
namespace {

constexpr int limb_bits = 32;
constexpr std::uint64_t limb_mask = (std::uint64_t{1} << limb_bits) - 1;
constexpr int mantissa_bits = 52;
constexpr int carry_bits = std::bit_width(ExactSum::at_once) - 1;

#define OUTCROP_INLINE inline __attribute__((always_inline))

// The bits of a double without its sign, read as an integer. These integers have the same order as the absolute values
// of the doubles. Infinity and NaN give the largest integers.
using Bits = std::int64_t;
constexpr Bits sign_mask = ~(Bits{1} << 63);

OUTCROP_INLINE Bits largest_of(const double *values, std::size_t count) {
  Bits largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<Bits>(values[i]) & sign_mask);
  return largest;
}

// Splits each number into a high part and a low part. Replaces the numbers by their low parts, and returns the sum of
// the high parts. To get the high part, the function adds `unit` to the number and then subtracts `unit` again. The
// addition rounds the number to a multiple of a power of two. This power of two depends only on `unit`. No other
// operation of this function rounds.
OUTCROP_INLINE double take_high_parts(double *values, std::size_t count, double unit) {
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

// Returns 2^exponent. The result must be a normal floating-point number.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<Bits>(exponent + 1023) << mantissa_bits); }

constexpr std::size_t group_bytes = 64;

template <typename Value>
constexpr long group_cells = group_bytes / sizeof(Value);

// Collects the sums of groups, so that a single call of ExactSum::add() can add many of these sums.
struct GroupSums {
  static constexpr std::size_t capacity = ExactSum::at_once;

  double sums[capacity], squares[capacity];
  std::size_t count = 0;

  void empty_into(FieldSum &total) {
    total.sum.add(sums, count);
    total.squares.add(squares, count);
    count = 0;
  }
};

// The compiler's type for a vector register. The register width does not change the result. A wider register performs
// more additions at the same time.
template <typename Value, std::size_t count>
struct RegisterOf {
  using Type [[gnu::vector_size(count * sizeof(Value))]] = Value;
};
template <typename Value, std::size_t count>
using Register = typename RegisterOf<Value, count>::Type;

// Adds the second half of a group to the first half, and repeats this until one register of doubles remains. The
// squares of the values are added in the same way.
template <std::size_t width, typename Value>
OUTCROP_INLINE void add_to_width(const Value *cells, Register<double, width> &sum, Register<double, width> &square) {
  constexpr std::size_t parts = group_cells<Value> / width;
  Register<double, width> sums[parts], squares[parts];
  for (std::size_t i = 0; i < parts; ++i) {
    Register<Value, width> part;
    std::memcpy(&part, cells + i * width, sizeof part);
    sums[i] = __builtin_convertvector(part, Register<double, width>);
    squares[i] = sums[i] * sums[i];
  }
  for (std::size_t half = parts / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) {
      sums[i] += sums[i + half];
      squares[i] += squares[i + half];
    }
  sum = sums[0];
  square = squares[0];
}

// Adds the second half of every group to its first half. The groups are in two registers, and the sums go into one
// register. In the inputs, each group has `left` successive numbers. In the result, each group has left / 2 successive
// numbers.
template <std::size_t left, typename Numbers, std::size_t... place>
OUTCROP_INLINE void join(const Numbers &one, const Numbers &other, Numbers &joined, std::index_sequence<place...>) {
  constexpr std::size_t half = left / 2;
  joined = __builtin_shufflevector(one, other, (place / half * left + place % half)...) +
           __builtin_shufflevector(one, other, (place / half * left + place % half + half)...);
}

// Repeats join() until each group has only one number, which is its sum. The number of groups equals the register
// width.
template <std::size_t width, std::size_t left = width>
OUTCROP_INLINE void add_halves(Register<double, width> *groups, double *sums) {
  if constexpr (left == 1) {
    std::memcpy(sums, groups, sizeof *groups);
  } else {
    for (std::size_t i = 0; i < left / 2; ++i)
      join<left>(groups[2 * i], groups[2 * i + 1], groups[i], std::make_index_sequence<width>());
    add_halves<width, left / 2>(groups, sums);
  }
}

template <std::size_t width, typename Value>
OUTCROP_INLINE void add_groups(const Value *cells, GroupSums &groups) {
  Register<double, width> sums[width], squares[width];
  for (std::size_t i = 0; i < width; ++i) add_to_width<width>(cells + i * group_cells<Value>, sums[i], squares[i]);
  add_halves<width>(sums, groups.sums + groups.count);
  add_halves<width>(squares, groups.squares + groups.count);
  groups.count += width;
}

// Updates the minimum and the maximum. Comparisons with NaN are false, so a NaN does not change the minimum and the
// maximum.
template <std::size_t width, typename Value>
OUTCROP_INLINE void extend(const Value *row, long x0, long x1, FieldSum &total) {
  constexpr long count = width * sizeof(double) / sizeof(Value);
  using Cells = Register<Value, count>;
  Cells low = Cells{} + static_cast<Value>(total.minimum), high = Cells{} + static_cast<Value>(total.maximum);
  for (; x0 + count <= x1; x0 += count) {
    Cells cells;
    std::memcpy(&cells, row + x0, sizeof cells);
    low = cells < low ? cells : low;
    high = cells > high ? cells : high;
  }
  for (; x0 < x1; ++x0) {
    low[0] = row[x0] < low[0] ? row[x0] : low[0];
    high[0] = row[x0] > high[0] ? row[x0] : high[0];
  }
  for (long i = 0; i < count; ++i) {
    total.minimum = std::min(total.minimum, static_cast<double>(low[i]));
    total.maximum = std::max(total.maximum, static_cast<double>(high[i]));
  }
}

// Adds the groups of one row. Cells after the end of the row count as 0.
template <std::size_t width, typename Value>
OUTCROP_INLINE void add_row(const Value *row, long x0, long x1, GroupSums &groups, FieldSum &total) {
  constexpr long step = width * group_cells<Value>;
  extend<width>(row, x0, x1, total);
  for (; x0 < x1; x0 += step) {
    if (x0 + step <= x1) {
      add_groups<width>(row + x0, groups);
    } else {
      Value cells[step] = {};
      std::copy(row + x0, row + x1, cells);
      add_groups<width>(cells, groups);
    }
    if (groups.count == GroupSums::capacity) groups.empty_into(total);
  }
}

template <std::size_t width, typename Value>
OUTCROP_INLINE void add_rows(const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells,
                             FieldSum &total) {
  GroupSums groups;
  for (long y = cells.y0; y < cells.y1; ++y) {
    const auto *row = reinterpret_cast<const Value *>(origin + y * static_cast<long>(pitch_bytes));
    add_row<width>(row, cells.x0, cells.x1, groups, total);
  }
  groups.empty_into(total);
}

// The functions above, compiled for one set of vector instructions. The vector width does not change the result.
struct Compiled {
  using AddRows = void(const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells, FieldSum &total);

  Bits (*largest)(const double *, std::size_t);
  double (*take_high)(double *, std::size_t, double);
  AddRows *add_floats, *add_doubles;
};

#define OUTCROP_COMPILE(NAME, WIDTH, ...)                                                                        \
  __VA_ARGS__ Bits largest_##NAME(const double *values, std::size_t count) { return largest_of(values, count); } \
  __VA_ARGS__ double take_high_##NAME(double *values, std::size_t count, double unit) {                          \
    return take_high_parts(values, count, unit);                                                                 \
  }                                                                                                              \
  template <typename Value>                                                                                      \
  __VA_ARGS__ void add_##NAME(const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells,          \
                              FieldSum &total) {                                                                 \
    add_rows<WIDTH, Value>(origin, pitch_bytes, cells, total);                                                   \
  }                                                                                                              \
  constexpr Compiled NAME{largest_##NAME, take_high_##NAME, add_##NAME<float>, add_##NAME<double>};

OUTCROP_COMPILE(plain, 2)
#if defined(__x86_64__)
OUTCROP_COMPILE(avx2, 4, __attribute__((target("avx2"))))
#if defined(__clang__)  // Clang has no preference in this attribute, and uses vectors of 512 bits without it
OUTCROP_COMPILE(avx512, 8, __attribute__((target("avx512f"))))
#else
OUTCROP_COMPILE(avx512, 8, __attribute__((target("avx512f,prefer-vector-width=512"))))
#endif
#endif

// Returns the functions for this processor.
const Compiled &compiled() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512;
  if (__builtin_cpu_supports("avx2")) return avx2;
#endif
  return plain;
}

}  // namespace

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    special_ += value;
    return;
  }
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << mantissa_bits) - 1);
  const auto exponent = static_cast<unsigned>(bits >> mantissa_bits) & 0x7ffu;
  // value = mantissa * 2^(shift - 1074). Subnormal numbers have no leading bit 1. They have the same exponent as the
  // smallest normal numbers.
  const std::uint64_t mantissa = exponent == 0 ? fraction : fraction | std::uint64_t{1} << mantissa_bits;
  const unsigned shift = exponent == 0 ? 0 : exponent - 1;
  const unsigned limb = shift / limb_bits, within = shift % limb_bits;
  const std::uint64_t low = (mantissa & limb_mask) << within, high = (mantissa >> limb_bits) << within;
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  limbs_[limb] += sign * static_cast<std::int64_t>(low & limb_mask);
  limbs_[limb + 1] += sign * static_cast<std::int64_t>((low >> limb_bits) + (high & limb_mask));
  limbs_[limb + 2] += sign * static_cast<std::int64_t>(high >> limb_bits);
  if (++adds_ == max_adds) carry();
}

void ExactSum::add(double *values, std::size_t count) {
  assert(count <= at_once);
  // if `above` is between these limits, no high part overflows, and no high part is subnormal
  constexpr int lowest = -900, highest = 1023 - carry_bits;
  static const Compiled &functions = compiled();
  while (const Bits largest = functions.largest(values, count)) {
    const int above = static_cast<int>(largest >> mantissa_bits) - 1022;  // all absolute values are below 2^above
    if (above < lowest || above > highest) {
      for (std::size_t i = 0; i < count; ++i) add(values[i]);
      return;
    }
    add(functions.take_high(values, count, power_of_two(above + carry_bits)));
  }
}

void ExactSum::add(const ExactSum &other) {
  ExactSum carried = other;
  carried.carry();
  for (std::size_t i = 0; i < limbs; ++i) limbs_[i] += carried.limbs_[i];
  special_ += carried.special_;
  if (++adds_ == max_adds) carry();
}

// Moves the carries to higher limbs. After this function, each limb except the last is at least 0 and below 2^32.
void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < limbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> limb_bits;
    limbs_[i] &= static_cast<std::int64_t>(limb_mask);
  }
  adds_ = 0;
}

std::vector<std::byte> ExactSum::integer() const {
  ExactSum carried = *this;
  carried.carry();
  std::vector<std::byte> bytes;
  const auto append = [&](std::int64_t limb, int count) {
    for (int i = 0; i < count; ++i)
      bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(limb) >> (8 * i)));
  };
  for (std::size_t i = 0; i + 1 < limbs; ++i) append(carried.limbs_[i], limb_bits / 8);
  append(carried.limbs_[limbs - 1], 8);
  return bytes;
}

void FieldSum::add(const FieldSum &other) {
  sum.add(other.sum);
  squares.add(other.squares);
  minimum = std::min(minimum, other.minimum);
  maximum = std::max(maximum, other.maximum);
}

GridSums::GridSums(const Grid &grid, const Window &window, const Fields &fields, std::vector<SumRequest> requests)
    : grid_(grid), window_(window), fields_(fields), requests_(std::move(requests)), results_(requests_.size()) {
  for (std::size_t i = 0; i < requests_.size(); ++i) by_step_.emplace(requests_[i].done, i);
}

void GridSums::add(long done, long z0, long z1, const Rectangle &cells) {
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one)
    add(one->second, sum(fields_.ring(FieldValue{requests_[one->second].field, 0}, done), z0, z1, cells));
}

void GridSums::add_rim(long position, const Rectangle &cells) {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    add(i, sum(fields_.ring(FieldValue{requests_[i].field, 0}, 0), position, position + 1, cells));
}

FieldSum GridSums::sum(std::size_t ring, long z0, long z1, const Rectangle &cells) const {
  FieldSum total;
  Rectangle part = cells;
  part.x1 = std::min(cells.x1, grid_.nx);
  const auto add_part = grid_.item_bytes == sizeof(float) ? compiled().add_floats : compiled().add_doubles;
  for (long z = z0; z < z1; ++z) add_part(window_.origin(ring, z), window_.pitch_bytes(), part, total);
  return total;
}

void GridSums::add(std::size_t request, const FieldSum &part) {
  const std::lock_guard lock(mutex_);
  results_[request].add(part);
}

}  // namespace outcrop
