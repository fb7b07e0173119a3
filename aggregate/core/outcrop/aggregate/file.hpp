// One file that all ranks of a plan write or read together, and the operations on it.
//
// All functions of File are collective. All ranks call them in the same order and give the same arguments except for the
// memory. An error at one rank is thrown on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/plan.hpp"

namespace outcrop::aggregate {

/// A write or read of one step that File::begin_write or begin_read has started. Copying inside a node and the I/O of
/// aggregators continue beside the caller. Messages between nodes advance only in test() and wait().
///
/// An operation can be moved. The destructor waits until it ends and ignores its outcome.
class Operation {
 public:
  Operation() = default;
  Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step);
  Operation(Operation &&) noexcept = default;
  Operation &operator=(Operation &&other) noexcept;
  ~Operation() { abandon(); }

  /// Returns true when the operation has ended. Then it throws as wait() does.
  bool test();
  /// Returns when the operation has ended. Throws StorageError (with rank, file and offset), InputError (the memory does not
  /// fit) or CommunicationError. All ranks throw the same error.
  void wait();

  Timing timing() const;

 private:
  void abandon() noexcept;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Step> step_;
};

/// An open file. It can be moved.
class File {
 public:
  /// Creates a file, or empties an existing one. Throws StorageError.
  static File create(const Plan &plan, const std::string &path, const FileOptions &options = {});
  /// Opens an existing file for reading, and for writing if `writable`. Throws StorageError.
  static File open(const Plan &plan, const std::string &path, bool writable = false, const FileOptions &options = {});

  File(File &&) noexcept;
  File &operator=(File &&) noexcept;
  /// Without close(), the destructor waits for this rank's operations and its stage, and ignores their outcomes. Then node
  /// files have no index.
  ~File();

  /// `memory` has one span for each variable of this rank, at least as long as declared. It must stay valid until the
  /// operation has ended, and unchanged for begin_write. `base` is added to all offsets of the file. `problem` is an error
  /// that this rank has already found: if it is not empty, the rank takes part without data, and all ranks throw the error.
  Operation begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
                        const std::string &problem = {});
  Operation begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0,
                       const std::string &problem = {});

  /// Returns when the operation has ended. Throws as Operation::wait() does.
  Timing write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
               const std::string &problem = {});
  Timing read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0, const std::string &problem = {});

  /// Returns when all written bytes are durable in the file. Staged bytes are drained first.
  void flush();
  /// Waits for all operations, and until the stage is drained. Afterwards the file can only be destroyed. Throws if bytes
  /// cannot be drained; they stay in the stage.
  void close();

  const std::string &path() const;
  /// One line for each step that an earlier run had left in the stage of any node: whether it is in the file now or lost.
  const std::vector<std::string> &notes() const;

 private:
  explicit File(std::unique_ptr<Opened> opened);
  std::unique_ptr<Opened> opened_;
};

}  // namespace outcrop::aggregate
