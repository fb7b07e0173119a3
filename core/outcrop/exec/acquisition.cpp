#include "outcrop/exec/acquisition.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

namespace outcrop {

// --- sums over all cells ---------------------------------------------------------------------------------------------

namespace {

constexpr int limb_bits = 32;
constexpr std::uint64_t limb_mask = (std::uint64_t{1} << limb_bits) - 1;
constexpr int mantissa_bits = 52;
constexpr int carry_bits = std::bit_width(ExactSum::at_once) - 1;

#define OUTCROP_INLINE inline __attribute__((always_inline))

// An integer with the bits of a double, except for the sign bit. If the absolute value of one double is larger than
// that of another double, the integer is also larger. The integers of infinity and NaN are the largest.
using Bits = std::int64_t;
constexpr Bits sign_mask = ~(Bits{1} << 63);

OUTCROP_INLINE Bits largest_of(const double *values, std::size_t count) {
  Bits largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<Bits>(values[i]) & sign_mask);
  return largest;
}

// Splits each number into a high part and a low part. The function replaces the numbers by their low parts, and returns
// the sum of the high parts. The high part is the result of adding `unit` to the number and then subtracting `unit`
// again. The addition of `unit` rounds the number to a multiple of a power of two. This power depends only on `unit`.
// No other operation of take_high_parts() rounds.
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

// Collects the sums of many groups. When enough sums are collected, a single call of ExactSum::add() adds all of them.
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

// The compiler's type for a vector register. The width of the register does not change the result. A wider register
// performs more additions at the same time.
template <typename Value, std::size_t count>
struct RegisterOf {
  using Type [[gnu::vector_size(count * sizeof(Value))]] = Value;
};
template <typename Value, std::size_t count>
using Register = typename RegisterOf<Value, count>::Type;

// Adds the second half of a group to its first half. Repeats this addition until the result fits into one register of
// doubles. The function adds the squares of the values in the same way.
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

// Adds the second half of every group to its first half. The input is two registers. In these registers, each group has
// `left` successive numbers. The result is one register. In this register, each group has left / 2 successive numbers.
template <std::size_t left, typename Numbers, std::size_t... place>
OUTCROP_INLINE void join(const Numbers &one, const Numbers &other, Numbers &joined, std::index_sequence<place...>) {
  constexpr std::size_t half = left / 2;
#if defined(__clang__) || __GNUC__ >= 12
  joined = __builtin_shufflevector(one, other, (place / half * left + place % half)...) +
           __builtin_shufflevector(one, other, (place / half * left + place % half + half)...);
#else
  using Places = Register<long, sizeof...(place)>;
  joined = __builtin_shuffle(one, other, Places{long(place / half * left + place % half)...}) +
           __builtin_shuffle(one, other, Places{long(place / half * left + place % half + half)...});
#endif
}

// Repeats join() until each group has only one number, which is the sum of the group. The number of groups is the
// number of doubles in a register.
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

// Updates the minimum and the maximum. Comparisons with NaN are false. Therefore a NaN does not change the minimum and
// the maximum.
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

// The functions above in compiled form, for one set of vector instructions. The width of the vectors does not change
// the result.
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
#if defined(__clang__)  // Clang refuses prefer-vector-width in this attribute, and uses vectors of 512 bits
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
  // value = mantissa * 2^(shift - 1074). The mantissas of subnormal numbers have no leading bit 1. Subnormal numbers
  // have the same exponent as the smallest normal numbers.
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

// Moves the carries to higher limbs. After a call of carry(), each limb except the last is at least 0 and below 2^32.
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

// --- sources, receivers and all requests of a pass -------------------------------------------------------------------

namespace {

bool writes(const StageCall &call, std::size_t ring) {
  return std::ranges::find(call.targets, ring) != call.targets.end();
}

bool updates(const StageCall &call, const Fields &fields, std::size_t field) {
  return writes(call, fields.ring(field, 0)) || writes(call, fields.ring(field, 1));
}

std::size_t last_stage(const Stages &stages, const Fields &fields, std::size_t field) {
  auto stage = static_cast<std::size_t>(stages.per_step());
  const auto lead = static_cast<std::size_t>(stages.lead.levels);
  while (stage > 0 && !updates(stages.calls[lead + stage - 1], fields, field)) --stage;
  assert(stage > 0);  // a field that no stage updates cannot have sources
  return stage - 1;
}

template <typename Value>
void add_value(std::byte *cell, const std::byte *values, std::size_t index) {
  *reinterpret_cast<Value *>(cell) += reinterpret_cast<const Value *>(values)[index];
}

void add_value(const Grid &grid, std::byte *cell, const std::byte *values, std::size_t index) {
  if (grid.item_bytes == sizeof(float))
    add_value<float>(cell, values, index);
  else
    add_value<double>(cell, values, index);
}

}  // namespace

void PointTable::add(const Grid &grid, std::size_t list, const std::vector<Cell> &cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell &cell = cells[i];
    assert(cell.x >= 0 && cell.x < grid.nx);
    assert((cell.z >= 0 || grid.has_below()) && (cell.z < grid.nz || grid.has_above()));
    // a negative value of rim_y_low or rim_y_high means that a neighbouring rank owns the rows beyond this side
    assert((cell.y >= 0 || grid.rim_y_low < 0) && (cell.y < grid.ny || grid.rim_y_high < 0));
    points_.push_back({grid.position(cell.z), cell.y, cell.x, list, i});
  }
}

void PointTable::sort() {
  if (points_.empty()) return;
  std::ranges::stable_sort(points_, {}, [](const Point &one) { return std::tuple(one.position, one.y, one.x); });
  lowest_ = points_.front().position;
  first_.assign(static_cast<std::size_t>(points_.back().position - lowest_) + 2, 0);
  for (const Point &point : points_) ++first_[static_cast<std::size_t>(point.position - lowest_) + 1];
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

Injections::Injections(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
                       const std::vector<PointInjection> &lists)
    : grid_(grid), window_(window), tables_(static_cast<std::size_t>(stages.per_step())) {
  for (const PointInjection &list : lists) {
    std::vector<std::size_t> rings;
    for (auto call = stages.calls.begin() + stages.lead.levels; call != stages.calls.end(); ++call)
      rings.push_back(fields.ring(list.field, writes(*call, fields.ring(list.field, 1)) ? 1 : 0));
    add_list(last_stage(stages, fields, list.field), list.cells, list.values, std::move(rings));
  }
  for (PointTable &table : tables_) table.sort();
}

Injections::Injections(const Grid &grid, const Window &window, const Lead &lead,
                       const std::vector<LeadInjection> &lists)
    : grid_(grid), window_(window), tables_(static_cast<std::size_t>(lead.per_step)) {
  for (const LeadInjection &list : lists) {
    std::vector<std::size_t> rings;
    for (const std::size_t field : list.fields) rings.insert(rings.end(), tables_.size(), field);
    add_list(static_cast<std::size_t>(list.stage), list.cells, list.values, std::move(rings));
  }
  for (PointTable &table : tables_) table.sort();
}

void Injections::add_list(std::size_t stage, const std::vector<Cell> &cells, const std::byte *values,
                          std::vector<std::size_t> rings) {
  tables_[stage].add(grid_, lists_.size(), cells);
  lists_.push_back({cells.size(), values, std::move(rings)});
}

void Injections::add(long level, long position, const Rectangle &cells) const {
  const auto own = static_cast<std::size_t>(level - 1), step = own / tables_.size();
  tables_[own % tables_.size()].for_each(position, cells, [&](const PointTable::Point &point) {
    const List &list = lists_[point.list];
    std::byte *cell = window_.cell(list.rings[own % list.rings.size()], position, point.y, point.x);
    add_value(grid_, cell, list.values, step * list.cells + point.index);
  });
}

Samples::Samples(const Grid &grid, const Window &window, const Fields &fields, std::vector<PointSamples> lists)
    : grid_(grid), window_(window), fields_(fields), lists_(std::move(lists)) {
  for (std::size_t i = 0; i < lists_.size(); ++i) (lists_[i].before ? before_ : after_).add(grid, i, lists_[i].cells);
  before_.sort();
  after_.sort();
}

// Takes samples for two kinds of receivers. Some receivers read the values after a step. Other receivers read the
// values before a step. The values after step `done` are also the values before the next step.
void Samples::take(long done, long steps, long position, const Rectangle &cells) const {
  if (done > 0) write(after_, done, done - 1, position, cells);
  if (done < steps) write(before_, done, done, position, cells);
}

void Samples::take_rim(long steps, long position, const Rectangle &cells) const {
  for (long step = 0; step < steps; ++step) {
    write(after_, 0, step, position, cells);
    write(before_, 0, step, position, cells);
  }
}

void Samples::write(const PointTable &table, long done, long row, long position, const Rectangle &cells) const {
  table.for_each(position, cells, [&](const PointTable::Point &point) {
    const PointSamples &list = lists_[point.list];
    const std::byte *cell = window_.cell(fields_.ring(FieldValue{list.field, 0}, done), position, point.y, point.x);
    const double value = grid_.item_bytes == sizeof(float) ? static_cast<double>(*reinterpret_cast<const float *>(cell))
                                                           : *reinterpret_cast<const double *>(cell);
    list.values[static_cast<std::size_t>(row) * list.cells.size() + point.index] = value;
  });
}

Acquisition::Acquisition(const Grid &grid, const Window &window, const Fields &fields, const Stages &stages,
                         AcquisitionRequests requests, long steps, std::atomic<std::uint64_t> &bytes_snapshots)
    : grid_(grid),
      lead_(stages.lead.levels),
      stages_(stages.per_step()),
      steps_(steps),
      only_own_(requests.only_own),
      only_own_rows_(requests.only_own_rows),
      injections_(grid, window, fields, stages, requests.injections),
      lead_injections_(grid, window, stages.lead, requests.lead_injections),
      samples_(grid, window, fields, std::move(requests.samples)),
      sums_(grid, window, fields, std::move(requests.sums)),
      snapshots_(grid, window, fields, std::move(requests.snapshots), requests.backend, requests.staging,
                 bytes_snapshots) {}

void Acquisition::after(long level, long z0, long z1, const Rectangle &cells) {
  const long own_level = level - lead_;
  const Injections &injections = own_level > 0 ? injections_ : lead_injections_;
  if (!injections.empty())
    for (const Rectangle &part : unfolded(grid_, cells))
      for (long z = z0; z < z1; ++z) injections.add(own_level > 0 ? own_level : level, z, part);
  if (own_level > 0 && own_level % stages_ == 0) take(own_level / stages_, z0, z1, cells);
}

void Acquisition::take(long done, long z0, long z1, const Rectangle &cells) {
  const OwnedCells own = only_own_ ? own_ : OwnedCells{};
  long begin = std::max(z0, own.z0), end = std::min(z1, own.z1);
  Rectangle inside = intersection(cells, own.cells);
  if (only_own_rows_) inside = intersection(inside, whole_plane(grid_));
  if (only_own_rows_) begin = std::max(0L, begin), end = std::min(grid_.nz, end);
  for (const Rectangle &part : unfolded(grid_, inside)) {
    if (begin >= end || part.empty()) continue;
    if (!samples_.empty())
      for (long z = begin; z < end; ++z) samples_.take(done, steps_, z, part);
    if (!sums_.empty()) sums_.add(done, begin, end, part);
    if (!snapshots_.empty()) snapshots_.write(done, begin, end, part);
  }
}

void Acquisition::rim(long position, const Rectangle &cells) {
  if (position < 0 || position >= grid_.nz) return;          // planes of a neighbouring rank: it processes their rim
  Rectangle part = intersection(cells, whole_plane(grid_));  // the same for rows
  if (only_own_) {
    if (position < own_.z0 || position >= own_.z1) return;
    part = intersection(part, own_.cells);
  }
  if (part.empty()) return;
  samples_.take_rim(steps_, position, part);
  sums_.add_rim(position, part);
  snapshots_.write_rim(position, part);
}

}  // namespace outcrop
