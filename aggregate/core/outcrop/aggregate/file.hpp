// One file that all ranks of a plan write or read together, and the operations on this file. All functions of File are
// collective. All ranks must call the functions of File in the same order. All ranks must pass the same arguments,
// except that each rank passes its own memory. If an error occurs on one rank, all ranks throw this error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/plan.hpp"
#include "outcrop/aggregate/steps/step.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

struct FileOptions {
  bool durable = false;  ///< true if a write ends only when its bytes are on the device
  CacheMode cache_mode = CacheMode::automatic;
  /// the fixed size of a file that create() makes; the value 0 means that the file grows
  std::uint64_t size_bytes = 0;
  /// The folder of the stage, on a tier of this node. Nodes may have different folders. With a stage, a write ends when
  /// its bytes are durable in the stage folder. The staged bytes are copied to the file later, in the background. If
  /// `stage_folder` is empty, there is no stage, and bytes are written directly to the file.
  std::string stage_folder = {};
  /// The maximum size of the stage on a node, in bytes. All aggregators of the node share this size. If `stage_bytes`
  /// is 0, a stage may use all free bytes.
  std::uint64_t stage_bytes = 0;
  /// Other stage folders of this node. An earlier program may have left steps of this file in these folders. The
  /// library drains or discards these steps, as it does with steps that an earlier program has left in `stage_folder`.
  std::vector<std::string> settle_folders = {};
  /// If true, each node writes its own file. The index `path`.index lists these files (node_files.hpp).
  bool node_files = false;
  Faults faults = {};  ///< simulated errors of storage at aggregators, for tests
};

/// A write or a read of one step, which may still be under way. File::begin_write() and File::begin_read() return an
/// `Operation`.
///
/// While the caller computes, threads copy bytes inside the node and perform the I/O. Messages between nodes move only
/// during calls of test() and wait(). The destructor of an operation waits until the operation has ended. The
/// destructor ignores errors. Operation objects can be moved, but not copied.
class Operation {
 public:
  Operation() = default;
  Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step);

  /// Returns true if the operation has ended without an error, and false if it has not ended. Throws the same errors as
  /// wait().
  bool test();
  /// Waits until the operation has ended. Throws StorageError (with rank, file and offset), CommunicationError, or
  /// InputError if the memory is too small. All ranks throw the same error.
  void wait();

  Timing timing() const;

 private:
  struct Begun {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Step> step;
    ~Begun();
  };
  std::unique_ptr<Begun> begun_;
};

struct Opened;

/// An open file. File objects can be moved, but not copied.
class File {
 public:
  /// Creates a file, or empties an existing one. Throws StorageError.
  static File create(const Plan &plan, const std::string &path, const FileOptions &options = {});
  /// Opens an existing file for reading. If `writable` is true, the caller can also write to the file. Throws
  /// StorageError.
  static File open(const Plan &plan, const std::string &path, bool writable = false, const FileOptions &options = {});

  File(File &&) noexcept;
  File &operator=(File &&) noexcept;
  /// If close() was not called, the destructor waits until the operations of this rank have ended and the stage is
  /// drained. The destructor ignores errors and writes no index of node files.
  ~File();

  /// These functions begin a write or a read of one step. `memory` has one span for each variable of this rank. Each
  /// span must be at least as long as the declaration says, and must stay valid until the operation has ended. During a
  /// write, the caller must not change the bytes of the spans. `base` is added to all offsets of the file. `problem` is
  /// an error that this rank has already found, or empty. If `problem` is not empty, this rank takes part in the
  /// operation without data, and all ranks throw `problem` as an error. In the file, the bytes of a rank with a problem
  /// stay unchanged.
  Operation begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
                        const std::string &problem = {});
  Operation begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0,
                       const std::string &problem = {});

  /// Performs the whole operation before it returns. Throws the same errors as Operation::wait().
  Timing write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
               const std::string &problem = {});
  Timing read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0, const std::string &problem = {});

  /// Returns when all written bytes are durable in the file. Staged bytes are drained first.
  void flush();
  /// Waits until all operations have ended and the stage is drained. After close(), the caller can only destroy the
  /// File object. Throws an error if some staged bytes cannot be drained. These bytes stay in the stage.
  void close();

  const std::string &path() const;
  /// Returns one line for each step that an earlier program has left in the stage of any node. Each line says whether
  /// the step is now in the file or is lost.
  const std::vector<std::string> &notes() const;

 private:
  explicit File(std::unique_ptr<Opened> opened);
  std::unique_ptr<Opened> opened_;
};

}  // namespace outcrop::aggregate
