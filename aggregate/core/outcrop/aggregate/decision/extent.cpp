#include "outcrop/aggregate/decision/extent.hpp"

#include <string>

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

// --- extents -------------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t max_offset = std::uint64_t{1} << 62;  // the system's type for file offsets can hold this value

std::uint64_t checked(std::uint64_t a, std::uint64_t b, bool multiply, const char *what) {
  std::uint64_t result = 0;
  const bool overflows = multiply ? __builtin_mul_overflow(a, b, &result) : __builtin_add_overflow(a, b, &result);
  if (overflows || result > max_offset)
    throw InputError(std::string(what) + " of an extent is too large: " + std::to_string(a) +
                     (multiply ? " x " : " + ") + std::to_string(b) + " bytes; the maximum is 2^62");
  return result;
}

std::uint64_t product(std::uint64_t a, std::uint64_t b, const char *what) { return checked(a, b, true, what); }
std::uint64_t sum(std::uint64_t a, std::uint64_t b, const char *what) { return checked(a, b, false, what); }

// Reduces the number of dims. If the blocks of the last dim have no gaps in the file and in memory, joins the blocks
// into one longer block. If one stride in the file and one stride in memory describe all repetitions of two
// neighbouring dims, joins these two dims.
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
  if (extent.dims.size() > Extent::max_dims)
    throw InputError("an extent has " + std::to_string(extent.dims.size()) + " dimensions, at most " +
                     std::to_string(Extent::max_dims));
  std::ranges::stable_sort(extent.dims, std::ranges::greater{}, &Dimension::file_stride_bytes);
  std::uint64_t span = extent.block_bytes, total = extent.block_bytes;
  std::uint64_t memory = sum(extent.memory_offset, extent.block_bytes, "the memory");
  for (std::size_t i = extent.dims.size(); i-- > 0;) {
    const Dimension &dim = extent.dims[i];
    if (dim.file_stride_bytes < span)
      throw InputError("repetitions of an extent overlap: stride " + std::to_string(dim.file_stride_bytes) +
                       " bytes in the file, but each takes " + std::to_string(span) +
                       "; declare interleaved parts as separate extents");
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
        sum(extent.file_offset, product(starts[axis], file_stride, "the start in the file"), "the start in the file");
    file_stride = product(file_stride, sizes[axis], "the array");
    memory_stride = product(memory_stride, subsizes[axis], "the memory");
  }
  return nested(std::move(extent));
}

// --- patterns ------------------------------------------------------------------------------------------------------

Pattern::Pattern(const Declaration &declaration) : memory_bytes_(declaration.variables.size()) {
  for (std::uint32_t variable = 0; variable < declaration.variables.size(); ++variable)
    for (const Extent &given : declaration.variables[variable]) {
      const Extent extent = nested(given);
      if (extent.block_bytes == 0) continue;
      memory_bytes_[variable] = std::max(memory_bytes_[variable], extent.memory_bytes());
      extents_.push_back({extent, variable, extent.hull()});
    }
  arrange();
}

Pattern::Pattern(std::vector<DeclaredExtent> extents) : extents_(std::move(extents)) { arrange(); }

void Pattern::arrange() {
  std::ranges::stable_sort(extents_, {}, [](const DeclaredExtent &declared) { return declared.hull.begin; });
  std::uint64_t end = 0;
  for (const DeclaredExtent &declared : extents_) {
    ends_.push_back(end = std::max(end, declared.hull.end));
    bytes_ += declared.extent.bytes();
    blocks_ += declared.extent.blocks();
  }
}

std::size_t Pattern::first_in(const Range &range) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends_, range.begin) - ends_.begin());
}

std::uint64_t Pattern::bytes_in(const Range &range) const {
  std::uint64_t bytes = 0;
  visit_extents(range, [&](const DeclaredExtent &declared) { bytes += declared.extent.bytes_in(range); });
  return bytes;
}

std::vector<std::uint64_t> Pattern::serialised(std::span<const Range> ranges) const {
  std::vector<std::uint64_t> words;
  for (const DeclaredExtent &declared : extents_) {
    // The ranges are sorted, so this loop tests only those ranges that overlap the hull.
    auto from = std::ranges::upper_bound(ranges, declared.hull.begin, {}, &Range::end);
    bool found = false;
    for (; from != ranges.end() && from->begin < declared.hull.end && !found; ++from)
      found = declared.extent.bytes_in(*from) > 0;
    if (!found) continue;
    words.insert(words.end(), {declared.extent.file_offset, declared.extent.block_bytes, declared.extent.dims.size()});
    for (const Dimension &dim : declared.extent.dims) words.insert(words.end(), {dim.count, dim.file_stride_bytes});
  }
  return words;
}

Pattern Pattern::parsed(std::span<const std::uint64_t> words) {
  std::vector<DeclaredExtent> extents;
  for (std::size_t i = 0; i < words.size();) {
    Extent extent{words[i], 0, words[i + 1], std::vector<Dimension>(words[i + 2])};
    i += 3;
    for (Dimension &dim : extent.dims) {
      dim = {words[i], words[i + 1], 0};
      i += 2;
    }
    const Range hull = extent.hull();
    extents.push_back({std::move(extent), 0, hull});
  }
  return Pattern(std::move(extents));
}

// --- overlaps ------------------------------------------------------------------------------------------------------

namespace {

// A part of an extent that begins at offset `file` of the file. The part contains all repetitions of the dims with the
// index `level` or a higher index.
struct ExtentTail {
  const detail::Walk &walk;
  std::size_t level;
  std::uint64_t file;

  bool is_block() const { return level == walk.dims.size(); }
  const Dimension &dim() const { return walk.dims[level]; }
  std::uint64_t end() const { return file + walk.spans[level]; }
  ExtentTail repetition(std::uint64_t index) const { return {walk, level + 1, file + index * dim().file_stride_bytes}; }
};

std::optional<std::uint64_t> common_of(const ExtentTail &a, const ExtentTail &b);

// Returns a byte that `a` and `b` both contain. The first dims of `a` and `b` must have the same stride. Consider the
// pairs of repetition i of `a` and repetition j of `b`. Two pairs with the same difference j - i have the same relative
// position, so either both overlap or neither overlaps. Only three values of j - i can give an overlap.
std::optional<std::uint64_t> common_in_step(const ExtentTail &a, const ExtentTail &b) {
  const auto stride = static_cast<__int128>(a.dim().file_stride_bytes);
  const auto count_a = static_cast<__int128>(a.dim().count), count_b = static_cast<__int128>(b.dim().count);
  const __int128 apart = static_cast<__int128>(a.file) - static_cast<__int128>(b.file);
  for (__int128 ahead = apart / stride - 1; ahead <= apart / stride + 1; ++ahead) {
    if (ahead <= -count_a || ahead >= count_b) continue;
    // the lowest i for which `b` has a repetition i + `ahead`
    const __int128 first = ahead < 0 ? -ahead : 0;
    const auto found = common_of(a.repetition(static_cast<std::uint64_t>(first)),
                                 b.repetition(static_cast<std::uint64_t>(first + ahead)));
    if (found) return found;
  }
  return std::nullopt;
}

// Returns a byte that `a` and `b` both contain. Tests only the repetitions of `a` that overlap the hull of `b`.
std::optional<std::uint64_t> common_with_each(const ExtentTail &a, const ExtentTail &b) {
  const Dimension &dim = a.dim();
  const std::uint64_t inside = a.file + a.walk.spans[a.level + 1];  // the end of the first repetition
  const std::uint64_t first = inside > b.file ? 0 : (b.file - inside) / dim.file_stride_bytes + 1;
  for (std::uint64_t i = first; i < dim.count && a.file + i * dim.file_stride_bytes < b.end(); ++i)
    if (const auto found = common_of(a.repetition(i), b)) return found;
  return std::nullopt;
}

std::optional<std::uint64_t> common_of(const ExtentTail &a, const ExtentTail &b) {
  if (a.file >= b.end() || b.file >= a.end()) return std::nullopt;
  if (a.is_block() && b.is_block()) return std::max(a.file, b.file);
  if (b.is_block()) return common_with_each(a, b);
  if (a.is_block()) return common_with_each(b, a);
  const std::uint64_t stride_a = a.dim().file_stride_bytes, stride_b = b.dim().file_stride_bytes;
  if (stride_a == stride_b) return common_in_step(a, b);
  return stride_a > stride_b ? common_with_each(a, b) : common_with_each(b, a);
}

}  // namespace

std::optional<std::uint64_t> common_byte(const Extent &a, const Extent &b) {
  if (a.block_bytes == 0 || b.block_bytes == 0) return std::nullopt;
  const detail::Walk walk_a = detail::walk_of(a, {}), walk_b = detail::walk_of(b, {});
  return common_of({walk_a, 0, a.file_offset}, {walk_b, 0, b.file_offset});
}

std::optional<Overlap> find_overlap(std::span<const Sender> senders) {
  struct RankExtent {
    const DeclaredExtent *declared;
    int rank;
  };
  std::vector<RankExtent> all;
  for (const Sender &sender : senders)
    for (const DeclaredExtent &declared : sender.pattern.extents()) all.push_back({&declared, sender.rank});
  std::ranges::stable_sort(all, {}, [](const RankExtent &found) { return found.declared->hull.begin; });
  std::vector<RankExtent> open;  // the earlier extents whose hulls end after the start of `next`
  for (const RankExtent &next : all) {
    std::erase_if(open,
                  [&](const RankExtent &before) { return before.declared->hull.end <= next.declared->hull.begin; });
    for (const RankExtent &before : open)
      if (const auto offset = common_byte(before.declared->extent, next.declared->extent))
        return Overlap{*offset, std::min(before.rank, next.rank), std::max(before.rank, next.rank)};
    open.push_back(next);
  }
  return std::nullopt;
}

}  // namespace outcrop::aggregate
