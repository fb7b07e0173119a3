// Extents and patterns describe the bytes of a file that a rank writes or reads, and the places of these bytes in the
// rank's memory.
//
// An extent describes repeated blocks with a few numbers. Each dim of an extent has a number of repetitions and a
// stride. The stride is the distance between the starts of two neighbouring repetitions:
//
//     file    ..[block]....[block]....[block]......[block]....[block]....[block]..
//               └─ file stride ─┘          dims[1]: 3 blocks
//               └───────── file stride ────────────┘          dims[0]: 2 repetitions of dims[1]
//
// A contiguous extent has no dims, and a strided extent has one dim. A subarray has a dim for each axis that it does
// not cover completely. The first dim has the largest file stride. Each repetition of the first dim contains all other
// dims. A repetition of a dim begins only after the end of the previous repetition. Therefore simple arithmetic finds
// the blocks in a given range of the file, sorted by offset.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace outcrop::aggregate {

/// The bytes of a file from offset `begin` to offset `end` - 1.
struct Range {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t bytes() const { return end > begin ? end - begin : 0; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range &) const = default;
};

inline Range common(const Range &a, const Range &b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

/// Appends a range to sorted ranges. If the new range begins at the end of the last range, extends the last range
/// instead.
inline void append(std::vector<Range> &ranges, const Range &range) {
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

/// Merges neighbouring items, from index `first` on. Calls join(before, next) for each pair of neighbouring items.
/// join() returns true if it has merged `next` into `before`. If join() returns true, this function removes `next`.
template <typename Item, typename Join>
void join_neighbours(std::vector<Item> &items, std::size_t first, Join &&join) {
  if (first >= items.size()) return;
  std::size_t last = first;
  for (std::size_t i = first + 1; i < items.size(); ++i)
    if (!join(items[last], items[i])) items[++last] = items[i];
  items.resize(last + 1);
}

struct Dimension {
  std::uint64_t count = 1, file_stride_bytes = 0, memory_stride_bytes = 0;
  bool operator==(const Dimension &) const = default;
};

struct Extent {
  static constexpr std::size_t max_dims = 16;

  std::uint64_t file_offset = 0, memory_offset = 0;
  std::uint64_t block_bytes = 0;  ///< the size of one block; the value 0 means that the extent is empty
  std::vector<Dimension> dims;

  std::uint64_t bytes() const;
  /// Returns the number of blocks. A block is contiguous in the file and in memory.
  std::uint64_t blocks() const { return block_bytes == 0 ? 0 : bytes() / block_bytes; }
  /// Returns the smallest range of the file that contains the extent.
  Range hull() const;
  /// Returns the minimum size, in bytes, of the memory for this extent.
  std::uint64_t memory_bytes() const;
  /// Returns the number of bytes of the extent in a range of the file.
  std::uint64_t bytes_in(const Range &range) const;

  bool operator==(const Extent &) const = default;
};

// The functions below make extents. All of these functions throw InputError in three cases: if an offset exceeds 2^62,
// if a subarray is not inside its array, or if repetitions overlap.

Extent contiguous(std::uint64_t file_offset, std::uint64_t bytes, std::uint64_t memory_offset = 0);

/// Makes an extent of `count` blocks. The blocks have one stride in the file and another stride in memory. If the
/// memory stride is 0, the blocks are contiguous in memory.
Extent strided(std::uint64_t file_offset, std::uint64_t count, std::uint64_t block_bytes,
               std::uint64_t file_stride_bytes, std::uint64_t memory_stride_bytes = 0);

/// Makes the extent of a part of an array in C order. The array has `sizes` items on its axes. The part begins at the
/// indices `starts` and has `subsizes` items. The part is contiguous in memory.
Extent subarray(std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> subsizes,
                std::span<const std::uint64_t> starts, std::uint64_t item_bytes, std::uint64_t file_offset = 0);

/// Makes an extent from dims in any order. The function checks the dims, sorts the dims, removes dims with one
/// repetition, and joins adjacent blocks.
Extent nested(Extent extent);

// --- visiting ------------------------------------------------------------------------------------------------------

/// `count` blocks with a stride in the file and a stride in memory. `file` and `memory` are the offsets of the first
/// block. Each block has `block` bytes.
struct Batch {
  std::uint64_t file = 0, memory = 0, count = 0, file_stride = 0, memory_stride = 0, block = 0;
};

namespace detail {

struct Walk {
  std::span<const Dimension> dims;
  // Element i is the length of the file range that contains all repetitions of dim i. The last element is the length of
  // one block.
  std::array<std::uint64_t, Extent::max_dims + 1> spans{};
  std::uint64_t block = 0;
  Range clip;
};

inline Walk walk_of(const Extent &extent, const Range &clip) {
  Walk walk{extent.dims, {}, extent.block_bytes, clip};
  walk.spans[extent.dims.size()] = extent.block_bytes;
  for (std::size_t level = extent.dims.size(); level-- > 0;)
    walk.spans[level] = walk.spans[level + 1] + (extent.dims[level].count - 1) * extent.dims[level].file_stride_bytes;
  return walk;
}

// Returns {first, last}. Only the repetitions with first <= i < last of the dim `level` can have bytes in `walk.clip`.
inline std::array<std::uint64_t, 2> touched(const Walk &walk, std::size_t level, std::uint64_t file) {
  const Dimension &dim = walk.dims[level];
  const std::uint64_t inside = walk.spans[level + 1];
  const std::uint64_t first =
      file + inside > walk.clip.begin ? 0 : (walk.clip.begin - file - inside) / dim.file_stride_bytes + 1;
  const std::uint64_t last =
      walk.clip.end <= file ? 0 : std::min(dim.count, (walk.clip.end - file - 1) / dim.file_stride_bytes + 1);
  return {std::min(first, dim.count), last};
}

template <typename Visit>
void visit_block(const Walk &walk, std::uint64_t file, std::uint64_t memory, Visit &&visit) {
  const Range part = common({file, file + walk.block}, walk.clip);
  if (!part.empty()) visit(Batch{part.begin, memory + (part.begin - file), 1, 0, 0, part.bytes()});
}

template <typename Visit>
void walk_level(const Walk &walk, std::size_t level, std::uint64_t file, std::uint64_t memory, Visit &&visit) {
  if (level == walk.dims.size()) return visit_block(walk, file, memory, visit);
  const Dimension &dim = walk.dims[level];
  auto [first, last] = touched(walk, level, file);
  if (first >= last) return;
  const auto file_at = [&](std::uint64_t index) { return file + index * dim.file_stride_bytes; };
  const auto memory_at = [&](std::uint64_t index) { return memory + index * dim.memory_stride_bytes; };
  if (level + 1 < walk.dims.size()) {
    for (std::uint64_t i = first; i < last; ++i) walk_level(walk, level + 1, file_at(i), memory_at(i), visit);
    return;
  }
  if (file_at(first) < walk.clip.begin || file_at(first) + walk.block > walk.clip.end) {
    visit_block(walk, file_at(first), memory_at(first), visit);
    ++first;
  }
  if (first >= last) return;
  const bool cut = file_at(last - 1) + walk.block > walk.clip.end;
  const std::uint64_t whole = last - (cut ? 1 : 0);
  if (first < whole)
    visit(Batch{file_at(first), memory_at(first), whole - first, dim.file_stride_bytes, dim.memory_stride_bytes,
                walk.block});
  if (cut) visit_block(walk, file_at(last - 1), memory_at(last - 1), visit);
}

}  // namespace detail

/// Calls visit(Batch) for all blocks in the range, and for the parts of blocks in the range, in the order of the file.
template <typename Visit>
void visit_batches(const Extent &extent, const Range &range, Visit &&visit) {
  if (extent.block_bytes == 0 || range.empty()) return;
  detail::walk_level(detail::walk_of(extent, range), 0, extent.file_offset, extent.memory_offset, visit);
}

// --- patterns ------------------------------------------------------------------------------------------------------

/// The extents of each variable of a rank. Every step writes or reads these extents. A rank without data declares no
/// variables.
struct Declaration {
  std::vector<std::vector<Extent>> variables;
};

/// An extent and its variable. The bytes of the extent are in the memory of this variable.
struct DeclaredExtent {
  Extent extent;
  std::uint32_t variable = 0;
  Range hull;
};

/// The extents of all variables of a rank, sorted by their offsets in the file. Because of this order, a search for the
/// extents in a range is fast. The bytes in messages are in the order of the extents (messages.cpp).
class Pattern {
 public:
  Pattern() = default;
  explicit Pattern(const Declaration &declaration);
  explicit Pattern(std::vector<DeclaredExtent> extents);

  /// Returns the sorted extents. Each extent has at least one byte.
  std::span<const DeclaredExtent> extents() const { return extents_; }
  /// Returns the minimum size of the memory of each variable, in bytes.
  std::span<const std::uint64_t> memory_bytes() const { return memory_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t blocks() const { return blocks_; }
  std::uint64_t bytes_in(const Range &range) const;

  /// Calls visit(extent) for each extent whose hull overlaps `range`.
  template <typename Visit>
  void visit_extents(const Range &range, Visit &&visit) const {
    for (std::size_t i = first_in(range); i < extents_.size() && extents_[i].hull.begin < range.end; ++i)
      if (extents_[i].hull.end > range.begin) visit(extents_[i]);
  }

  /// Returns a message for another rank. The message describes the extents that have bytes in at least one of the
  /// ranges. The message does not tell where the extents are in memory.
  std::vector<std::uint64_t> serialised(std::span<const Range> ranges) const;
  static Pattern parsed(std::span<const std::uint64_t> words);

 private:
  void arrange();
  std::size_t first_in(const Range &range) const;

  std::vector<DeclaredExtent> extents_;
  std::vector<std::uint64_t> ends_;  // element i is the highest end among the hulls of extents 0 to i
  std::vector<std::uint64_t> memory_bytes_;
  std::uint64_t bytes_ = 0, blocks_ = 0;
};

// --- overlaps ------------------------------------------------------------------------------------------------------
// Two ranks must not write the same byte. If extents of the ranks overlap, no plan is made. Therefore a step does not
// need to search for overlaps.

struct Sender {
  int rank = 0;
  Pattern pattern;
};

struct Overlap {
  std::uint64_t offset = 0;
  int first_rank = 0, second_rank = 0;  ///< first_rank <= second_rank; equal if two extents of one rank overlap
};

/// Returns the offset of a byte that both extents contain, or no value if the extents do not overlap.
std::optional<std::uint64_t> common_byte(const Extent &a, const Extent &b);

/// Returns one overlap of two extents of the senders, or no value if no extents overlap.
std::optional<Overlap> find_overlap(std::span<const Sender> senders);

}  // namespace outcrop::aggregate
