// Reading node files by their index, and making one file of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/sinks/node_index.hpp"
#include "outcrop/storage/files.hpp"

namespace outcrop::aggregate {

/// One thread at a time. Files are opened when they are first needed.
class NodeFiles {
 public:
  NodeFiles(std::unique_ptr<outcrop::Folder> folder, NodeIndex index);

  /// Bytes of the whole; those that nobody has written are zeros. Whether any was. Throws StorageError.
  bool read(std::uint64_t offset, std::span<std::byte> bytes);

  /// The first byte from `offset` on that a step has written; the end of the whole where there is none.
  std::uint64_t next_written(std::uint64_t offset) const;

  /// Throws CorruptionError where a file is shorter than the index has it, StorageError.
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

/// Makes the one file `target` of all files in an index, and returns its size. It is read back and compared before it gets
/// its name: there is all of it, durable, or what was there before. The node files stay. Throws InputError, CorruptionError,
/// StorageError.
std::uint64_t merge(const std::string &index, const std::string &target, Files &files = Files::system());

}  // namespace outcrop::aggregate
