#include "outcrop/aggregate/decision/overlap.hpp"

#include <algorithm>
#include <vector>

namespace outcrop::aggregate {
namespace {

// What is left of an extent from some dim on.
struct Part {
  std::span<const Dimension> dims;
  std::uint64_t block = 0;
  std::uint64_t file = 0;

  std::uint64_t inside() const {  // bytes from first to last of one repetition
    return dims.empty() ? block : Part{dims.subspan(1), block, 0}.span();
  }
  std::uint64_t span() const {
    std::uint64_t bytes = block;
    for (const Dimension &dim : dims) bytes += (dim.count - 1) * dim.file_stride_bytes;
    return bytes;
  }
  Part repetition(std::uint64_t index) const {
    return {dims.subspan(1), block, file + index * dims.front().file_stride_bytes};
  }
};

std::optional<std::uint64_t> meet(const Part &a, const Part &b);

// Both repeat with the same stride: what matters is how many repetitions one is ahead of the other, and of that at most
// three cases bring a repetition of the one near one of the other.
std::optional<std::uint64_t> meet_in_step(const Part &a, const Part &b) {
  const auto stride = static_cast<__int128>(a.dims.front().file_stride_bytes);
  const auto count_a = static_cast<__int128>(a.dims.front().count),
             count_b = static_cast<__int128>(b.dims.front().count);
  const __int128 apart = static_cast<__int128>(a.file) - static_cast<__int128>(b.file);
  for (__int128 ahead = apart / stride - 1; ahead <= apart / stride + 1; ++ahead) {
    if (ahead <= -count_a || ahead >= count_b) continue;
    const __int128 first = ahead < 0 ? -ahead : 0;  // the first repetition of a that has a partner in b
    const auto found =
        meet(a.repetition(static_cast<std::uint64_t>(first)), b.repetition(static_cast<std::uint64_t>(first + ahead)));
    if (found) return found;
  }
  return std::nullopt;
}

// Every repetition of `a` that reaches into the hull of `b`.
std::optional<std::uint64_t> meet_each(const Part &a, const Part &b) {
  const Dimension &dim = a.dims.front();
  const std::uint64_t inside = a.inside(), end = b.file + b.span();
  const std::uint64_t first = a.file + inside > b.file ? 0 : (b.file - a.file - inside) / dim.file_stride_bytes + 1;
  for (std::uint64_t i = first; i < dim.count && a.file + i * dim.file_stride_bytes < end; ++i)
    if (const auto found = meet(a.repetition(i), b)) return found;
  return std::nullopt;
}

std::optional<std::uint64_t> meet(const Part &a, const Part &b) {
  if (a.file >= b.file + b.span() || b.file >= a.file + a.span()) return std::nullopt;
  if (a.dims.empty() && b.dims.empty()) return std::max(a.file, b.file);
  if (b.dims.empty()) return meet_each(a, b);
  if (a.dims.empty()) return meet_each(b, a);
  const std::uint64_t stride_a = a.dims.front().file_stride_bytes, stride_b = b.dims.front().file_stride_bytes;
  if (stride_a == stride_b) return meet_in_step(a, b);
  return stride_a > stride_b ? meet_each(a, b) : meet_each(b, a);
}

struct Found {
  const Entry *entry;
  int rank;
};

}  // namespace

std::optional<std::uint64_t> meeting(const Extent &a, const Extent &b) {
  if (a.block_bytes == 0 || b.block_bytes == 0) return std::nullopt;
  return meet({a.dims, a.block_bytes, a.file_offset}, {b.dims, b.block_bytes, b.file_offset});
}

std::optional<Overlap> find_overlap(std::span<const Sender> senders) {
  std::vector<Found> all;
  for (const Sender &sender : senders)
    for (const Entry &entry : sender.pattern.entries()) all.push_back({&entry, sender.rank});
  std::ranges::stable_sort(all, {}, [](const Found &found) { return found.entry->hull.begin; });
  std::vector<Found> open;  // those whose hulls reach to where we are
  for (const Found &next : all) {
    std::erase_if(open, [&](const Found &before) { return before.entry->hull.end <= next.entry->hull.begin; });
    for (const Found &before : open)
      if (const auto offset = meeting(before.entry->extent, next.entry->extent))
        return Overlap{*offset, std::min(before.rank, next.rank), std::max(before.rank, next.rank)};
    open.push_back(next);
  }
  return std::nullopt;
}

}  // namespace outcrop::aggregate
