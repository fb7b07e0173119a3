#include "outcrop/exec/grid_sums.hpp"

#include <algorithm>
#include <array>

namespace outcrop {
namespace {

constexpr std::size_t group_bytes = 64;

// Halves are added until one number is left.
template <std::size_t count>
double fold_up(std::array<double, count> values) {
  for (std::size_t half = count / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

template <typename Value>
void add_row(const Value *row, long x0, long x1, FieldSum &total) {
  constexpr std::size_t count = group_bytes / sizeof(Value);
  std::array<double, count> values, squares, low, high;
  low.fill(total.minimum), high.fill(total.maximum);
  for (long x = x0; x < x1; x += static_cast<long>(count)) {
    const auto here = std::min(count, static_cast<std::size_t>(x1 - x));
    if (here < count) values.fill(0);
    for (std::size_t i = 0; i < here; ++i) {
      values[i] = static_cast<double>(row[x + static_cast<long>(i)]);
      low[i] = values[i] < low[i] ? values[i] : low[i];
      high[i] = values[i] > high[i] ? values[i] : high[i];
    }
    for (std::size_t i = 0; i < count; ++i) squares[i] = values[i] * values[i];
    total.sum.add(fold_up(values));
    total.squares.add(fold_up(squares));
  }
  total.minimum = *std::min_element(low.begin(), low.end());
  total.maximum = *std::max_element(high.begin(), high.end());
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
  const long end = std::min(cut.x1, grid_.nx);
  for (long z = z0; z < z1; ++z)
    for (long y = cut.y0; y < cut.y1; ++y) {
      const std::byte *row = window_.cell(ring, z, y, 0);
      if (grid_.item_bytes == sizeof(float))
        add_row(reinterpret_cast<const float *>(row), cut.x0, end, total);
      else
        add_row(reinterpret_cast<const double *>(row), cut.x0, end, total);
    }
  return total;
}

void GridSums::add(std::size_t request, const FieldSum &part) {
  const std::lock_guard lock(mutex_);
  results_[request].add(part);
}

}  // namespace outcrop
