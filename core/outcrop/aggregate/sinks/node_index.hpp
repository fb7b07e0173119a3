// One file for each node, and what makes one file of them: a listing (listing.hpp) that is written last.
//
//     out.node-0   out.node-4   ...   bytes at their offsets of the whole, with holes where other nodes' are
//     out.index    which node's file has which ranges of a step, and at which bases steps were written
//
// Ranges are those of the plan, so a step adds one line, whatever its pattern. Where steps overlap, the newest has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"

namespace outcrop::aggregate {

struct NodeRange {
  Range range;
  std::uint32_t file = 0;  ///< index of its name
  std::uint32_t padding = 0;
  bool operator==(const NodeRange &) const = default;
};

struct NodeIndex {
  std::uint64_t size_bytes = 0;      ///< at least, of the whole
  std::vector<std::string> files;    ///< names, in the index's folder
  std::vector<NodeRange> ranges;     ///< of one step, without its base; ascending
  std::vector<std::uint64_t> bases;  ///< of steps, the newest last, each once
  bool operator==(const NodeIndex &) const = default;

  /// A step has been written at `base`.
  void add_step(std::uint64_t base);
  /// Of the whole.
  std::uint64_t end() const;
};

std::string to_text(const NodeIndex &index);
/// The index in `text`, which is that of file `path`. Throws CorruptionError when it is not whole.
NodeIndex node_index_of(const std::string &text, const std::string &path);

/// Ranges in any order, as they are kept: ascending, and joined where they meet in the same file.
std::vector<NodeRange> joined(std::vector<NodeRange> ranges);

/// "out.index", "out.node-4".
std::string index_of(const std::string &path);
std::string node_file_of(const std::string &path, int node);

}  // namespace outcrop::aggregate
