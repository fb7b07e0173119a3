// What a rank will write or read in every step: for each of its variables, extents of the file.
//
// Extents of all variables are kept in the order of the file, so that those in a range are found by search. Sender and
// receiver both compute that order, and with it where bytes lie in a message (pack.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"

namespace outcrop::aggregate {

/// Extents for each variable; made by the makers of extent.hpp. A rank with nothing has none.
struct Declaration {
  std::vector<std::vector<Extent>> variables;
};

/// One extent, and the variable in whose memory its bytes are.
struct Entry {
  Extent extent;
  std::uint32_t variable = 0;
  Range hull;
};

class Pattern {
 public:
  Pattern() = default;
  explicit Pattern(const Declaration &declaration);
  explicit Pattern(std::vector<Entry> entries);

  /// In the order of the file; none is empty.
  std::span<const Entry> entries() const { return entries_; }
  /// Bytes of memory that each variable needs.
  std::span<const std::uint64_t> memory_bytes() const { return memory_bytes_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t blocks() const { return blocks_; }
  std::uint64_t bytes_in(const Range &range) const;

  /// Calls visit(entry) for those of which something may lie in the range.
  template <typename Visit>
  void visit_entries(const Range &range, Visit &&visit) const {
    for (std::size_t i = first_in(range); i < entries_.size() && entries_[i].hull.begin < range.end; ++i)
      if (entries_[i].hull.end > range.begin) visit(entries_[i]);
  }

  /// The file's side of those entries, for another rank: its bytes in any of the ranges are the same.
  std::vector<std::uint64_t> serialised(std::span<const Range> ranges) const;
  static Pattern parsed(std::span<const std::uint64_t> words);

 private:
  void arrange();
  std::size_t first_in(const Range &range) const;

  std::vector<Entry> entries_;
  std::vector<std::uint64_t> ends_;  // the largest end of a hull up to each entry
  std::vector<std::uint64_t> memory_bytes_;
  std::uint64_t bytes_ = 0, blocks_ = 0;
};

}  // namespace outcrop::aggregate
