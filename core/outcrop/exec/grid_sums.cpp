#include "outcrop/exec/grid_sums.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace outcrop {
namespace {

constexpr std::size_t group_bytes = 64;

template <typename Value>
constexpr long group_cells = group_bytes / sizeof(Value);

// Sums of groups that are still to be added exactly, many at once.
struct GroupSums {
  static constexpr std::size_t most = ExactSum::at_once;

  double sums[most], squares[most];
  std::size_t count = 0;

  void empty_into(FieldSum &total) {
    total.sum.add(sums, count);
    total.squares.add(squares, count);
    count = 0;
  }
};

#define OUTCROP_INLINE inline __attribute__((always_inline))

// What a register has room for, as the compiler has it: wider ones change no bit, they only do several of the same additions at
// once.
template <typename Value, std::size_t count>
struct RegisterOf {
  using Type [[gnu::vector_size(count * sizeof(Value))]] = Value;
};
template <typename Value, std::size_t count>
using Register = typename RegisterOf<Value, count>::Type;

// A group's halves are added until as many numbers are left as a register of doubles has room for; once of the values, once of
// their squares.
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

// Numbers of which every `left` belong to a group: the first halves of all groups in both registers plus the second ones.
template <std::size_t left, typename Numbers, std::size_t... place>
OUTCROP_INLINE void join(const Numbers &one, const Numbers &other, Numbers &joined, std::index_sequence<place...>) {
  constexpr std::size_t half = left / 2;
  joined = __builtin_shufflevector(one, other, (place / half * left + place % half)...) +
           __builtin_shufflevector(one, other, (place / half * left + place % half + half)...);
}

// Goes on with as many groups at once as a register has room for, until one number of each is left.
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

// What is no number compares as false and changes nothing.
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

// Cells that are not there are 0.
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
    if (groups.count == GroupSums::most) groups.empty_into(total);
  }
}

// Rows of one plane.
template <std::size_t width, typename Value>
OUTCROP_INLINE void add_rows(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut, FieldSum &total) {
  GroupSums groups;
  for (long y = cut.y0; y < cut.y1; ++y) {
    const auto *row = reinterpret_cast<const Value *>(origin + y * static_cast<long>(pitch_bytes));
    add_row<width>(row, cut.x0, cut.x1, groups, total);
  }
  groups.empty_into(total);
}

using AddRows = void (*)(const std::byte *, std::size_t, const Cut &, FieldSum &);

template <typename Value>
void add_plain(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut, FieldSum &total) {
  add_rows<2, Value>(origin, pitch_bytes, cut, total);
}

#if defined(__x86_64__)
template <typename Value>
__attribute__((target("avx2"))) void add_avx2(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut,
                                              FieldSum &total) {
  add_rows<4, Value>(origin, pitch_bytes, cut, total);
}
template <typename Value>
__attribute__((target("avx512f"))) void add_avx512(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut,
                                                   FieldSum &total) {
  add_rows<8, Value>(origin, pitch_bytes, cut, total);
}
#endif

template <typename Value>
AddRows choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return add_avx512<Value>;
  if (__builtin_cpu_supports("avx2")) return add_avx2<Value>;
#endif
  return add_plain<Value>;
}

AddRows choose(std::size_t item_bytes) { return item_bytes == sizeof(float) ? choose<float>() : choose<double>(); }

}  // namespace

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

void GridSums::add(long done, long z0, long z1, const Cut &cut) {
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one)
    add(one->second, sum(fields_.ring(Entry{requests_[one->second].field, 0}, done), z0, z1, cut));
}

void GridSums::add_rim(long position, const Cut &cut) {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    add(i, sum(fields_.ring(Entry{requests_[i].field, 0}, 0), position, position + 1, cut));
}

FieldSum GridSums::sum(std::size_t ring, long z0, long z1, const Cut &cut) const {
  FieldSum total;
  Cut part = cut;
  part.x1 = std::min(cut.x1, grid_.nx);
  const AddRows add_part = choose(grid_.item_bytes);
  for (long z = z0; z < z1; ++z) add_part(window_.origin(ring, z), window_.pitch_bytes(), part, total);
  return total;
}

void GridSums::add(std::size_t request, const FieldSum &part) {
  const std::lock_guard lock(mutex_);
  results_[request].add(part);
}

}  // namespace outcrop
