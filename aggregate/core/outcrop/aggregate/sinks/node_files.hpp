// Node files store one file in parts. There is one part for each node, and an index that lists the parts. The index is
// a listing (text.hpp), which is written after all parts.
//
//     out.node-0   out.node-4   ...   bytes at their offsets in the whole file, with holes for the bytes of other nodes
//     out.index                       for each range of a step, the node file that has it; and the bases of all steps
//
// All steps have the same ranges, because the ranges come from the plan. Therefore each step adds only one line to the
// index. The line of a step contains the base of the step. The base of a step is added to all offsets of the plan. If
// steps overlap, the newest step gives the valid bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- the index -----------------------------------------------------------------------------------------------------

struct NodeRange {
  Range range;
  std::uint32_t file = 0;  ///< the index in NodeIndex::files of the node file that has the range
  std::uint32_t padding = 0;
  bool operator==(const NodeRange &) const = default;
};

struct NodeIndex {
  std::uint64_t size_bytes = 0;      ///< the minimum size of the whole file
  std::vector<std::string> files;    ///< the names of the node files, which are in the same folder as the index
  std::vector<NodeRange> ranges;     ///< the ranges of a step whose base is 0, sorted by offset
  std::vector<std::uint64_t> bases;  ///< the bases of the steps; no base occurs twice, and the newest step is the last
  bool operator==(const NodeIndex &) const = default;

  /// Adds a step with the base `base` to the index.
  void add_step(std::uint64_t base);
  /// Returns the size of the whole file in bytes.
  std::uint64_t end() const;
};

/// Throws InputError if the text of an index with this number of ranges could be longer than max_text_bytes.
void check_ranges(std::size_t ranges);

std::string to_text(const NodeIndex &index);
/// Parses `text`, the content of the index file `path`. Throws CorruptionError if parts of the index are missing.
NodeIndex node_index_of(const std::string &text, const std::string &path);

/// Returns the ranges in sorted order. Adjacent ranges of the same file are joined.
std::vector<NodeRange> joined(std::vector<NodeRange> ranges);

// For example, these functions return "out.index" and "out.node-4" if `path` is "out" and `node` is 4.
std::string index_of(const std::string &path);
std::string node_file_of(const std::string &path, int node);

// --- reading all files ---------------------------------------------------------------------------------------------

/// Reads all node files together as one whole file. The object opens a node file only when it needs this file. Only one
/// thread at a time may use a NodeFiles object.
class NodeFiles {
 public:
  NodeFiles(std::unique_ptr<outcrop::Folder> folder, NodeIndex index);

  /// Reads bytes of the whole file. In `bytes`, bytes that no step has written are zeros. Returns false if no step has
  /// written any of these bytes. Throws StorageError.
  bool read(std::uint64_t offset, std::span<std::byte> bytes);

  /// Returns the offset of the first written byte at or after `offset`. If there is no such byte, returns the end of
  /// the whole file.
  std::uint64_t next_written(std::uint64_t offset) const;

  /// Throws CorruptionError if a node file is shorter than the index requires. Throws StorageError.
  void check_sizes();

  NodeIndex &index() { return index_; }

 private:
  const OpenFile &file(std::uint32_t number);
  void read_step(std::uint64_t base, const Range &wanted, std::uint64_t offset, std::span<std::byte> bytes,
                 std::vector<Range> &missing);

  std::unique_ptr<outcrop::Folder> folder_;
  NodeIndex index_;
  std::vector<std::unique_ptr<OpenFile>> files_;
};

/// Copies the bytes of all node files of an index into one file. Returns the size of this file. The function reads the
/// copy again and compares it before the copy gets the name `target`. Therefore `target` is either complete and
/// durable, or unchanged. The node files are kept. Throws InputError, CorruptionError, StorageError.
std::uint64_t merge(const std::string &index, const std::string &target, Files &files = Files::system());

// --- the sink ------------------------------------------------------------------------------------------------------

/// A sink for node files. It writes to the file of the aggregator's node, and reads from the files of all nodes.
class NodeFile final : public Sink {
 public:
  /// `path` is the path of the index. `own` is the file of the aggregator's node, or null if the aggregator only reads.
  NodeFile(std::string path, NodeFiles files, std::unique_ptr<Sink> own)
      : path_(std::move(path)), files_(std::move(files)), own_(std::move(own)) {}

  void begin_step([[maybe_unused]] std::uint64_t step, std::uint64_t base) override { base_ = base; }
  void end_step() override { files_.index().add_step(base_); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override {
    own_->write(offset, data, length);
  }
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // false, because each node file has large holes
  void flush() override {
    if (own_) own_->flush();
  }

 private:
  const std::string path_;
  NodeFiles files_;
  std::unique_ptr<Sink> own_;
  std::uint64_t base_ = 0;  // the base of the current step
};

}  // namespace outcrop::aggregate
