#include "outcrop/exec/coarse.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace outcrop {
namespace {

// The sums of each group of `size` cells in a row, from the first to the last cell of the group. The compiler unrolls
// the loop over the cells of a group if `Size` is not 0.
template <typename Item, long Size>
void sum_groups(const Item *cells, long count, long size, double *sums) {
  const long each = Size == 0 ? size : Size, whole = count / each;
  for (long i = 0; i < whole; ++i, cells += each) {
    auto sum = static_cast<double>(cells[0]);
    for (long k = 1; k < each; ++k) sum += static_cast<double>(cells[k]);
    sums[i] = sum;
  }
  if (const long rest = count - whole * each; rest > 0) {
    auto sum = static_cast<double>(cells[0]);
    for (long k = 1; k < rest; ++k) sum += static_cast<double>(cells[k]);
    sums[whole] = sum;
  }
}

template <typename Item>
void sum_groups(const std::byte *bytes, long count, long size, double *sums) {
  const auto *cells = reinterpret_cast<const Item *>(bytes);
  if (size == 2) return sum_groups<Item, 2>(cells, count, size, sums);
  if (size == 4) return sum_groups<Item, 4>(cells, count, size, sums);
  if (size == 8) return sum_groups<Item, 8>(cells, count, size, sums);
  sum_groups<Item, 0>(cells, count, size, sums);
}

void add_to(double *total, const double *sums, long count) {
  for (long i = 0; i < count; ++i) total[i] += sums[i];
}

// Returns the number of cells along one axis in group `number`. The last group of a box may be smaller.
long extent_of(long number, long group, long box) { return std::min(group, box - number * group); }

// The number of rows of sums for which memory is reserved (coarse_bytes in
// run/acquisition/pass_acquisition.py counts the same number).
std::size_t reserved_rows(const Extents &box, const Extents &group) {
  return static_cast<std::size_t>(box.y * (std::min(box.z, group.z) + 2));
}

thread_local std::vector<double> scratch;

}  // namespace

CoarseBox::CoarseBox(const Extents &box, const Extents &group, std::size_t item_bytes)
    : box_(box),
      group_(group),
      groups_(groups_of(box, group)),
      item_bytes_(item_bytes),
      memory_(reserved_rows(box, group) * static_cast<std::size_t>(groups_.x) * sizeof(double)),
      unused_(reserved_rows(box, group)) {
  assert(item_bytes == sizeof(float) || item_bytes == sizeof(double));
  free_.reserve(unused_);
}

bool CoarseBox::add(long z, long y, long x0, long x1, const std::byte *cells, CoarseRow &row) {
  const long group_z = z / group_.z, group_y = y / group_.y;
  const auto key = static_cast<std::uint64_t>(group_z * groups_.y + group_y);
  OpenRows &some = open_[key % open_.size()];
  std::unique_lock lock(some.mutex, std::defer_lock);
  std::vector<std::byte> joined;
  if (x1 - x0 < box_.x) {
    lock.lock();
    auto &[bytes, columns] = some.rows[key].parts[{z, y}];
    bytes.resize(static_cast<std::size_t>(box_.x) * item_bytes_);
    std::memcpy(bytes.data() + static_cast<std::size_t>(x0) * item_bytes_, cells,
                static_cast<std::size_t>(x1 - x0) * item_bytes_);
    columns += x1 - x0;
    if (columns < box_.x) return false;
    joined = std::move(bytes);
    some.rows[key].parts.erase({z, y});
    lock.unlock();
    cells = joined.data();
  }

  scratch.resize(static_cast<std::size_t>(groups_.x));
  sum_row(cells, scratch.data());

  lock.lock();
  OpenRow &open = some.rows[key];
  if (open.totals.empty()) open.totals.resize(static_cast<std::size_t>(extent_of(group_y, group_.y, box_.y)));
  const long planes = extent_of(group_z, group_.z, box_.z);
  Total &total = open.totals[static_cast<std::size_t>(y - group_y * group_.y)];
  add_plane(total, z - group_z * group_.z, scratch.data());
  if (total.planes < planes || ++open.complete < static_cast<long>(open.totals.size())) return false;
  OpenRow complete = std::move(open);
  some.rows.erase(key);
  lock.unlock();
  row.z = group_z;
  row.y = group_y;
  finish(complete, row);
  return true;
}

void CoarseBox::sum_row(const std::byte *cells, double *sums) const {
  if (item_bytes_ == sizeof(float)) return sum_groups<float>(cells, box_.x, group_.x, sums);
  sum_groups<double>(cells, box_.x, group_.x, sums);
}

// Adds the sums of a plane to a total, and then all waiting planes that follow without a gap.
void CoarseBox::add_plane(Total &total, long plane, const double *sums) {
  assert(plane >= total.planes && plane < group_.z);
  if (plane > total.planes || total.sums == nullptr) {
    double *copy = take();
    std::copy_n(sums, groups_.x, copy);
    if (plane > total.planes) return total.waiting.emplace_back(plane, copy), void();
    total.sums = copy;
  } else {
    add_to(total.sums, sums, groups_.x);
  }
  ++total.planes;
  const auto is_next = [&](const auto &one) { return one.first == total.planes; };
  for (auto next = std::ranges::find_if(total.waiting, is_next); next != total.waiting.end();
       next = std::ranges::find_if(total.waiting, is_next)) {
    add_to(total.sums, next->second, groups_.x);
    give_back(next->second);
    total.waiting.erase(next);
    ++total.planes;
  }
}

// Adds the totals of all rows, and divides by the number of cells of each group.
void CoarseBox::finish(OpenRow &open, CoarseRow &row) {
  const std::vector<Total> &totals = open.totals;
  row.means.assign(totals[0].sums, totals[0].sums + groups_.x);
  for (std::size_t i = 1; i < totals.size(); ++i) add_to(row.means.data(), totals[i].sums, groups_.x);
  const long above = extent_of(row.z, group_.z, box_.z) * static_cast<long>(totals.size());
  for (long x = 0; x < groups_.x; ++x)
    row.means[static_cast<std::size_t>(x)] /= static_cast<double>(above * extent_of(x, group_.x, box_.x));
  for (const Total &one : totals) give_back(one.sums);
}

double *CoarseBox::take() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    double *sums = free_.back();
    free_.pop_back();
    return sums;
  }
  const auto row_items = static_cast<std::size_t>(groups_.x);
  if (unused_ > 0) return reinterpret_cast<double *>(memory_.data()) + --unused_ * row_items;
  constexpr std::size_t more_rows = 64;
  auto *first = reinterpret_cast<double *>(more_memory_.emplace_back(more_rows * row_items * sizeof(double)).data());
  for (std::size_t i = 1; i < more_rows; ++i) free_.push_back(first + i * row_items);
  return first;
}

void CoarseBox::give_back(double *sums) {
  const std::lock_guard lock(mutex_);
  free_.push_back(sums);
}

bool CoarseBox::has_no_open_rows() const {
  return std::ranges::all_of(open_, [](const OpenRows &some) {
    const std::lock_guard lock(some.mutex);
    return some.rows.empty();
  });
}

}  // namespace outcrop
