// One file that all ranks of a plan write or read together. All functions are collective, with the same arguments but for
// the memory; what goes wrong at one rank is thrown on all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/operation.hpp"
#include "outcrop/aggregate/plan.hpp"
#include "outcrop/aggregate/steps/open_file.hpp"

namespace outcrop::aggregate {

struct Opened;

/// Movable.
class File {
 public:
  /// An existing file is emptied. Throws StorageError.
  static File create(const Plan &plan, const std::string &path, const FileOptions &options = {});
  /// Of an existing file, for reading, or for writing too.
  static File open(const Plan &plan, const std::string &path, bool writable = false, const FileOptions &options = {});

  File(File &&) noexcept;
  File &operator=(File &&) noexcept;
  /// Without close(): waits for what this rank has under way and has staged, drops outcomes. Node files have no index then.
  ~File();

  /// One span for each variable of this rank, at least as long as declared. It must stay until the operation is over, for
  /// begin_write unchanged. `base` is added to all offsets of the file. With a `problem`, what this rank knows to be wrong,
  /// it takes part without data, and all ranks are told.
  Operation begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
                        const std::string &problem = {});
  Operation begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0,
                       const std::string &problem = {});

  /// Returns when it is over; throws as Operation::wait() does.
  Timing write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
               const std::string &problem = {});
  Timing read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0, const std::string &problem = {});

  /// Returns when all that was written is durable in its file; staged bytes have been drained then.
  void flush();
  /// Waits for what is under way, and for stages to be drained; after it nothing but destruction is allowed. What could not
  /// be drained is thrown, and stays in the stage.
  void close();

  const std::string &path() const;
  /// What an earlier run had left in the stages of all nodes: what is in the file now, and what is lost. One line each.
  const std::vector<std::string> &notes() const;

 private:
  explicit File(std::unique_ptr<Opened> opened);
  std::unique_ptr<Opened> opened_;
};

}  // namespace outcrop::aggregate
