#include "outcrop/exec/grid_sums.hpp"

#include <algorithm>

namespace outcrop {
namespace {

constexpr std::size_t group_bytes = 64;

template <typename Value>
constexpr std::size_t group_cells = group_bytes / sizeof(Value);

// Halves are added until one number is left; once of the values, once of their squares.
template <std::size_t count>
void add_halves(const double *values, const double *squares, FieldSum &total) {
  if constexpr (count == 1) {
    total.sum.add(*values);
    total.squares.add(*squares);
  } else {
    double sums[count / 2], sums_of_squares[count / 2];
    for (std::size_t i = 0; i < count / 2; ++i) sums[i] = values[i] + values[i + count / 2];
    for (std::size_t i = 0; i < count / 2; ++i) sums_of_squares[i] = squares[i] + squares[i + count / 2];
    add_halves<count / 2>(sums, sums_of_squares, total);
  }
}

template <typename Value>
void add_group(const Value *cells, FieldSum &total) {
  constexpr std::size_t count = group_cells<Value>;
  double values[count], squares[count];
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(cells[i]);
  for (std::size_t i = 0; i < count; ++i) squares[i] = values[i] * values[i];
  add_halves<count>(values, squares, total);
}

template <typename Value>
void add_row(const Value *row, long x0, long x1, FieldSum &total) {
  constexpr std::size_t count = group_cells<Value>;
  constexpr auto step = static_cast<long>(count);
  Value low[count], high[count];
  std::fill_n(low, count, static_cast<Value>(total.minimum));
  std::fill_n(high, count, static_cast<Value>(total.maximum));
  for (; x0 + step <= x1; x0 += step) {
    const Value *cells = row + x0;
    for (std::size_t i = 0; i < count; ++i) low[i] = cells[i] < low[i] ? cells[i] : low[i];
    for (std::size_t i = 0; i < count; ++i) high[i] = cells[i] > high[i] ? cells[i] : high[i];
    add_group(cells, total);
  }
  if (x0 < x1) {
    Value cells[count] = {};
    std::copy(row + x0, row + x1, cells);
    add_group(cells, total);
    for (; x0 < x1; ++x0) {
      low[0] = row[x0] < low[0] ? row[x0] : low[0];
      high[0] = row[x0] > high[0] ? row[x0] : high[0];
    }
  }
  total.minimum = static_cast<double>(*std::min_element(low, low + count));
  total.maximum = static_cast<double>(*std::max_element(high, high + count));
}

// Rows of one plane. Wider vectors change no bit: they only do several of the same additions at once.
template <typename Value>
inline __attribute__((always_inline)) void add_rows(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut,
                                                    FieldSum &total) {
  for (long y = cut.y0; y < cut.y1; ++y)
    add_row(reinterpret_cast<const Value *>(origin + y * static_cast<long>(pitch_bytes)), cut.x0, cut.x1, total);
}

using AddRows = void (*)(const std::byte *, std::size_t, const Cut &, FieldSum &);

void add_floats(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut, FieldSum &total) {
  add_rows<float>(origin, pitch_bytes, cut, total);
}
void add_doubles(const std::byte *origin, std::size_t pitch_bytes, const Cut &cut, FieldSum &total) {
  add_rows<double>(origin, pitch_bytes, cut, total);
}

#if defined(__x86_64__)
__attribute__((target("avx2"), flatten)) void add_floats_avx2(const std::byte *origin, std::size_t pitch_bytes,
                                                              const Cut &cut, FieldSum &total) {
  add_rows<float>(origin, pitch_bytes, cut, total);
}
__attribute__((target("avx2"), flatten)) void add_doubles_avx2(const std::byte *origin, std::size_t pitch_bytes,
                                                               const Cut &cut, FieldSum &total) {
  add_rows<double>(origin, pitch_bytes, cut, total);
}
#endif

AddRows choose(std::size_t item_bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return item_bytes == sizeof(float) ? add_floats_avx2 : add_doubles_avx2;
#endif
  return item_bytes == sizeof(float) ? add_floats : add_doubles;
}

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
