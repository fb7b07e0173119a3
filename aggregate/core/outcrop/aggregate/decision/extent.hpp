// Extents and patterns describe the bytes of a file that a rank writes or reads, and their places in its memory.
//
// An extent describes repeated blocks by a few numbers instead of a list:
//
//     file    ..[block]....[block]....[block]......[block]....[block]....[block]..
//               └─ file stride ─┘          dims[1]: 3 blocks
//               └───────── file stride ────────────┘          dims[0]: 2 times that
//
// A contiguous extent has no dims, a strided extent has one. A subarray has one for each axis that it does not cover
// completely. The first dim has the largest file stride and contains the others. A repetition begins only after the end of the
// previous repetition. So the part of an extent in a range of the file follows by arithmetic, in the order of the file.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace outcrop::aggregate {

/// Bytes `begin` to `end` - 1 of a file.
struct Range {
  std::uint64_t begin = 0, end = 0;

  std::uint64_t bytes() const { return end > begin ? end - begin : 0; }
  bool empty() const { return end <= begin; }
  bool operator==(const Range &) const = default;
};

inline Range common(const Range &a, const Range &b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

struct Dimension {
  std::uint64_t count = 1, file_stride_bytes = 0, memory_stride_bytes = 0;
  bool operator==(const Dimension &) const = default;
};

struct Extent {
  static constexpr std::size_t max_dims = 16;

  std::uint64_t file_offset = 0, memory_offset = 0;
  std::uint64_t block_bytes = 0;  ///< 0: the extent is empty
  std::vector<Dimension> dims;

  std::uint64_t bytes() const;
  /// The number of blocks. Each block is contiguous in the file and in memory.
  std::uint64_t blocks() const { return block_bytes == 0 ? 0 : bytes() / block_bytes; }
  /// The smallest range of the file that contains the extent.
  Range hull() const;
  /// The bytes that the memory of the variable must have.
  std::uint64_t memory_bytes() const;
  /// The number of bytes in a range of the file.
  std::uint64_t bytes_in(const Range &range) const;

  bool operator==(const Extent &) const = default;
};

// The functions that make extents throw InputError if an offset exceeds 2^62, if a subarray is not inside its array, or if
// repetitions overlap.

Extent contiguous(std::uint64_t file_offset, std::uint64_t bytes, std::uint64_t memory_offset = 0);

/// Makes `count` blocks with a stride in the file and in memory. With a memory stride of 0, they are adjacent in memory.
Extent strided(std::uint64_t file_offset, std::uint64_t count, std::uint64_t block_bytes,
               std::uint64_t file_stride_bytes, std::uint64_t memory_stride_bytes = 0);

/// Makes the part of an array in C order that begins at index `starts` and has `subsizes` items. It is contiguous in memory.
Extent subarray(std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> subsizes,
                std::span<const std::uint64_t> starts, std::uint64_t item_bytes, std::uint64_t file_offset = 0);

/// Checks an extent with dims in any order, sorts them, removes dims with one repetition, and joins adjacent blocks.
Extent nested(Extent extent);

// --- visiting ------------------------------------------------------------------------------------------------------

/// `count` blocks with strides in the file and in memory. `file` and `memory` are the offsets of the first block.
struct Batch {
  std::uint64_t file = 0, memory = 0, count = 0, file_stride = 0, memory_stride = 0, block = 0;
};

namespace detail {

struct Walk {
  std::span<const Dimension> dims;
  std::array<std::uint64_t, Extent::max_dims + 1>
      spans{};  // bytes of the file from the first to the last of each level
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

// Returns {first, last}: the repetitions first to last - 1 of this level have bytes in the clip.
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

/// Calls visit(Batch) for all blocks and parts of blocks in the range, in the order of the file.
template <typename Visit>
void visit_batches(const Extent &extent, const Range &range, Visit &&visit) {
  if (extent.block_bytes == 0 || range.empty()) return;
  detail::walk_level(detail::walk_of(extent, range), 0, extent.file_offset, extent.memory_offset, visit);
}

// --- patterns ------------------------------------------------------------------------------------------------------

/// The extents of each variable that a rank writes or reads in every step. A rank without data has no variables.
struct Declaration {
  std::vector<std::vector<Extent>> variables;
};

/// An extent and the variable whose memory has its bytes.
struct DeclaredExtent {
  Extent extent;
  std::uint32_t variable = 0;
  Range hull;
};

/// The extents of all variables of a rank, sorted by their places in the file, so that those in a range are found by search.
/// The sender and the receiver of a message both compute this order, which defines the places of bytes in it (pack.cpp).
class Pattern {
 public:
  Pattern() = default;
  explicit Pattern(const Declaration &declaration);
  explicit Pattern(std::vector<DeclaredExtent> extents);

  /// The sorted extents. None is empty.
  std::span<const DeclaredExtent> extents() const { return extents_; }
  /// The bytes that the memory of each variable must have.
  std::span<const std::uint64_t> memory_bytes() const { return memory_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t blocks() const { return blocks_; }
  std::uint64_t bytes_in(const Range &range) const;

  /// Calls visit(extent) for all extents whose hulls meet the range.
  template <typename Visit>
  void visit_extents(const Range &range, Visit &&visit) const {
    for (std::size_t i = first_in(range); i < extents_.size() && extents_[i].hull.begin < range.end; ++i)
      if (extents_[i].hull.end > range.begin) visit(extents_[i]);
  }

  /// Returns a message for another rank with the file side of those extents that have bytes in any of the ranges.
  std::vector<std::uint64_t> serialised(std::span<const Range> ranges) const;
  static Pattern parsed(std::span<const std::uint64_t> words);

 private:
  void arrange();
  std::size_t first_in(const Range &range) const;

  std::vector<DeclaredExtent> extents_;
  std::vector<std::uint64_t> ends_;  // of each extent: the largest end of its hull and of those before it
  std::vector<std::uint64_t> memory_bytes_;
  std::uint64_t bytes_ = 0, blocks_ = 0;
};

// --- overlaps ------------------------------------------------------------------------------------------------------
// Two ranks must not write the same byte. Overlaps are found when a plan is made, so steps need no test.

struct Sender {
  int rank = 0;
  Pattern pattern;
};

struct Overlap {
  std::uint64_t offset = 0;
  int first_rank = 0, second_rank = 0;  ///< the lower rank first; they may be equal
};

/// Returns the offset of a byte that both extents contain, if there is one.
std::optional<std::uint64_t> common_byte(const Extent &a, const Extent &b);

/// Returns one of the overlaps, if there are any.
std::optional<Overlap> find_overlap(std::span<const Sender> senders);

}  // namespace outcrop::aggregate
