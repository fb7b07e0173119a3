#include "outcrop/aggregate/decision/extent.hpp"

#include <string>

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t offset_most = std::uint64_t{1} << 62;  // below what a signed offset of the system holds

std::uint64_t checked(std::uint64_t a, std::uint64_t b, bool multiply, const char *what) {
  std::uint64_t result = 0;
  const bool overflows = multiply ? __builtin_mul_overflow(a, b, &result) : __builtin_add_overflow(a, b, &result);
  if (overflows || result > offset_most)
    throw InputError(std::string(what) + " of an extent is too large: " + std::to_string(a) +
                     (multiply ? " x " : " + ") + std::to_string(b) + ", at most 2^62 bytes can be addressed");
  return result;
}

std::uint64_t product(std::uint64_t a, std::uint64_t b, const char *what) { return checked(a, b, true, what); }
std::uint64_t sum(std::uint64_t a, std::uint64_t b, const char *what) { return checked(a, b, false, what); }

// Joins a dim with the blocks inside it where both sides are contiguous.
void join(Extent &extent) {
  while (!extent.dims.empty()) {
    const Dimension &inner = extent.dims.back();
    if (inner.file_stride_bytes != extent.block_bytes || inner.memory_stride_bytes != extent.block_bytes) break;
    extent.block_bytes *= inner.count;
    extent.dims.pop_back();
  }
  for (std::size_t i = extent.dims.size(); i-- > 1;) {
    Dimension &outer = extent.dims[i - 1];
    const Dimension inner = extent.dims[i];
    if (outer.file_stride_bytes != inner.count * inner.file_stride_bytes ||
        outer.memory_stride_bytes != inner.count * inner.memory_stride_bytes)
      continue;
    outer = {outer.count * inner.count, inner.file_stride_bytes, inner.memory_stride_bytes};
    extent.dims.erase(extent.dims.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::uint64_t bytes_inside(const detail::Walk &walk, std::size_t level, std::uint64_t file, std::uint64_t whole_bytes) {
  if (level == walk.dims.size()) return common({file, file + walk.block}, walk.clip).bytes();
  const Dimension &dim = walk.dims[level];
  auto [first, last] = detail::touched(walk, level, file);
  if (first >= last) return 0;
  const std::uint64_t each = whole_bytes / dim.count;
  const auto cut = [&](std::uint64_t index) {
    const std::uint64_t begin = file + index * dim.file_stride_bytes;
    return begin < walk.clip.begin || begin + walk.spans[level + 1] > walk.clip.end;
  };
  const auto inside = [&](std::uint64_t index) {
    return bytes_inside(walk, level + 1, file + index * dim.file_stride_bytes, each);
  };
  std::uint64_t bytes = 0;
  if (cut(first)) bytes += inside(first++);
  if (first < last && cut(last - 1)) bytes += inside(--last);
  return bytes + (last > first ? (last - first) * each : 0);
}

}  // namespace

std::uint64_t Extent::bytes() const {
  std::uint64_t total = block_bytes;
  for (const Dimension &dim : dims) total *= dim.count;
  return total;
}

Range Extent::hull() const {
  std::uint64_t end = file_offset + block_bytes;
  for (const Dimension &dim : dims) end += (dim.count - 1) * dim.file_stride_bytes;
  return {file_offset, end};
}

std::uint64_t Extent::memory_bytes() const {
  if (block_bytes == 0) return 0;
  std::uint64_t end = memory_offset + block_bytes;
  for (const Dimension &dim : dims) end += (dim.count - 1) * dim.memory_stride_bytes;
  return end;
}

std::uint64_t Extent::bytes_in(const Range &range) const {
  if (block_bytes == 0 || range.empty()) return 0;
  return bytes_inside(detail::walk_of(*this, range), 0, file_offset, bytes());
}

Extent nested(Extent extent) {
  for (const Dimension &dim : extent.dims)
    if (dim.count == 0) extent.block_bytes = 0;
  if (extent.block_bytes == 0) return {extent.file_offset, 0, 0, {}};
  std::erase_if(extent.dims, [](const Dimension &dim) { return dim.count == 1; });
  if (extent.dims.size() > Extent::dims_most)
    throw InputError("an extent has " + std::to_string(extent.dims.size()) + " dimensions, at most " +
                     std::to_string(Extent::dims_most));
  std::ranges::stable_sort(extent.dims, std::ranges::greater{}, &Dimension::file_stride_bytes);
  std::uint64_t span = extent.block_bytes, total = extent.block_bytes;
  std::uint64_t memory = sum(extent.memory_offset, extent.block_bytes, "the memory");
  for (std::size_t i = extent.dims.size(); i-- > 0;) {
    const Dimension &dim = extent.dims[i];
    if (dim.file_stride_bytes < span)
      throw InputError("repetitions of an extent overlap: stride " + std::to_string(dim.file_stride_bytes) +
                       " bytes in the file, but each takes " + std::to_string(span) +
                       "; declare what interleaves as extents of their own");
    span = sum(product(dim.count - 1, dim.file_stride_bytes, "the end in the file"), span, "the end in the file");
    memory = sum(product(dim.count - 1, dim.memory_stride_bytes, "the memory"), memory, "the memory");
    total = product(dim.count, total, "the size");
  }
  sum(extent.file_offset, span, "the end in the file");
  join(extent);
  return extent;
}

Extent contiguous(std::uint64_t file_offset, std::uint64_t bytes, std::uint64_t memory_offset) {
  return nested({file_offset, memory_offset, bytes, {}});
}

Extent strided(std::uint64_t file_offset, std::uint64_t count, std::uint64_t block_bytes,
               std::uint64_t file_stride_bytes, std::uint64_t memory_stride_bytes) {
  const std::uint64_t in_memory = memory_stride_bytes == 0 ? block_bytes : memory_stride_bytes;
  return nested({file_offset, 0, block_bytes, {{count, file_stride_bytes, in_memory}}});
}

Extent subarray(std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> subsizes,
                std::span<const std::uint64_t> starts, std::uint64_t item_bytes, std::uint64_t file_offset) {
  if (sizes.empty() || sizes.size() != subsizes.size() || sizes.size() != starts.size())
    throw InputError("a subarray needs as many sizes as subsizes and starts, at least one: got " +
                     std::to_string(sizes.size()) + ", " + std::to_string(subsizes.size()) + " and " +
                     std::to_string(starts.size()));
  if (item_bytes == 0) throw InputError("items of a subarray have no bytes");
  Extent extent{file_offset, 0, item_bytes, {}};
  std::uint64_t file_stride = item_bytes, memory_stride = item_bytes;
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    if (subsizes[axis] > sizes[axis] || starts[axis] > sizes[axis] - subsizes[axis])
      throw InputError("a subarray lies outside of its array: axis " + std::to_string(axis) + " has " +
                       std::to_string(sizes[axis]) + " items, wanted are " + std::to_string(subsizes[axis]) +
                       " from item " + std::to_string(starts[axis]));
    extent.dims.push_back({subsizes[axis], file_stride, memory_stride});
    extent.file_offset =
        sum(extent.file_offset, product(starts[axis], file_stride, "the begin in the file"), "the begin in the file");
    file_stride = product(file_stride, sizes[axis], "the array");
    memory_stride = product(memory_stride, subsizes[axis], "the memory");
  }
  return nested(std::move(extent));
}

}  // namespace outcrop::aggregate
