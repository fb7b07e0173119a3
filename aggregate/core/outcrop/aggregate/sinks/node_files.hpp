// Node files are one file for each node, and an index that describes them as one file. The index is a listing (text.hpp). It is
// written last.
//
//     out.node-0   out.node-4   ...   bytes at their offsets in the whole file, with holes for the bytes of other nodes
//     out.index    which node's file has which ranges of a step, and the bases of the steps
//
// The ranges are those of the plan, so each step adds one line to the index. Where steps overlap, the newest one is valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/storage/folder.hpp"

namespace outcrop::aggregate {

// --- the index -----------------------------------------------------------------------------------------------------

struct NodeRange {
  Range range;
  std::uint32_t file = 0;  ///< index in NodeIndex::files
  std::uint32_t padding = 0;
  bool operator==(const NodeRange &) const = default;
};

struct NodeIndex {
  std::uint64_t size_bytes = 0;      ///< the minimum size of the whole file
  std::vector<std::string> files;    ///< names, in the index's folder
  std::vector<NodeRange> ranges;     ///< of one step, without its base; ascending
  std::vector<std::uint64_t> bases;  ///< of steps, without duplicates; the newest is the last
  bool operator==(const NodeIndex &) const = default;

  /// Adds a step that was written at `base`.
  void add_step(std::uint64_t base);
  /// Returns the size of the whole file.
  std::uint64_t end() const;
};

std::string to_text(const NodeIndex &index);
/// Returns the index in `text`, the content of file `path`. Throws CorruptionError if it is incomplete.
NodeIndex node_index_of(const std::string &text, const std::string &path);

/// Sorts ranges, and joins adjacent ranges of the same file.
std::vector<NodeRange> joined(std::vector<NodeRange> ranges);

// "out.index" and "out.node-4" for the path "out".
std::string index_of(const std::string &path);
std::string node_file_of(const std::string &path, int node);

// --- reading all files ---------------------------------------------------------------------------------------------

/// Reads the whole file from all node files. Files are opened on first use. One thread at a time may use it.
class NodeFiles {
 public:
  NodeFiles(std::unique_ptr<outcrop::Folder> folder, NodeIndex index);

  /// Reads bytes of the whole file. Bytes that no step has written are zeros. Returns false if no step has written any of the
  /// bytes. Throws StorageError.
  bool read(std::uint64_t offset, std::span<std::byte> bytes);

  /// Returns the first byte from `offset` on that a step has written, or the end of the whole file if there is none.
  std::uint64_t next_written(std::uint64_t offset) const;

  /// Throws CorruptionError if a file is shorter than the index requires. Throws StorageError.
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

/// Copies all files of an index into the single file `target`, and returns its size. The copy is read back and compared before
/// it gets its name. So `target` is either complete and durable, or unchanged. The node files are kept. Throws InputError,
/// CorruptionError, StorageError.
std::uint64_t merge(const std::string &index, const std::string &target, Files &files = Files::system());

// --- the sink ------------------------------------------------------------------------------------------------------

/// An aggregator writes to the file of its node, and reads from all files.
class NodeFile final : public Sink {
 public:
  /// `path`: of the index. `own`: the file of the aggregator's node; null if the aggregator only reads.
  NodeFile(std::string path, NodeFiles files, std::unique_ptr<Sink> own)
      : path_(std::move(path)), files_(std::move(files)), own_(std::move(own)) {}

  void begin_step([[maybe_unused]] std::uint64_t step, std::uint64_t base) override { files_.index().add_step(base); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override {
    own_->write(offset, data, length);
  }
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // each file has large holes
  void flush() override {
    if (own_) own_->flush();
  }

 private:
  const std::string path_;
  NodeFiles files_;
  std::unique_ptr<Sink> own_;
};

}  // namespace outcrop::aggregate
