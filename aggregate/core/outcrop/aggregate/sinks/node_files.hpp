// One file for each node, with an index that makes one file of them: a listing (text.hpp) that is written last.
//
//     out.node-0   out.node-4   ...   bytes at their offsets of the whole, with holes for the bytes of other nodes
//     out.index    which node's file has which ranges of a step, and at which bases steps were written
//
// Ranges are those of the plan, so a step adds one line, whatever its pattern. Where steps overlap, the newest one counts.
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
  std::uint32_t file = 0;  ///< index of its name
  std::uint32_t padding = 0;
  bool operator==(const NodeRange &) const = default;
};

struct NodeIndex {
  std::uint64_t size_bytes = 0;      ///< the minimum size of the whole
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
/// The index in `text`, the content of file `path`. Throws CorruptionError when it is incomplete.
NodeIndex node_index_of(const std::string &text, const std::string &path);

/// Sorts ranges, and joins those that meet in the same file.
std::vector<NodeRange> joined(std::vector<NodeRange> ranges);

/// "out.index", "out.node-4".
std::string index_of(const std::string &path);
std::string node_file_of(const std::string &path, int node);

// --- reading all files ---------------------------------------------------------------------------------------------

/// One thread at a time. Files are opened when they are first needed.
class NodeFiles {
 public:
  NodeFiles(std::unique_ptr<outcrop::Folder> folder, NodeIndex index);

  /// Reads bytes of the whole; those that were never written are zeros. False if all are. Throws StorageError.
  bool read(std::uint64_t offset, std::span<std::byte> bytes);

  /// The first byte from `offset` on that a step has written; the end of the whole if there is none.
  std::uint64_t next_written(std::uint64_t offset) const;

  /// Throws CorruptionError if a file is shorter than the index says, StorageError.
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

/// Makes the one file `target` of all files in an index, and returns its size. The copy is read back and compared before it
/// gets its name: `target` is then complete and durable, or what it was before. The node files stay. Throws InputError,
/// CorruptionError, StorageError.
std::uint64_t merge(const std::string &index, const std::string &target, Files &files = Files::system());

// --- the sink ------------------------------------------------------------------------------------------------------

/// The file of this node, as an aggregator writes it; all files, as it reads.
class NodeFile final : public Sink {
 public:
  /// `path`: of the index. `own`: the file that the aggregator's node writes to; null if it only reads.
  NodeFile(std::string path, NodeFiles files, std::unique_ptr<Sink> own)
      : path_(std::move(path)), files_(std::move(files)), own_(std::move(own)) {}

  void begin_step([[maybe_unused]] std::uint64_t step, std::uint64_t base) override { files_.index().add_step(base); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override {
    own_->write(offset, data, length);
  }
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // each node has many
  void flush() override {
    if (own_) own_->flush();
  }

 private:
  const std::string path_;
  NodeFiles files_;
  std::unique_ptr<Sink> own_;
};

}  // namespace outcrop::aggregate
