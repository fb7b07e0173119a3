// One file that all ranks of a plan write or read together, and the operations on this file. All functions of File are
// collective. All ranks must call these functions in the same order. All ranks must pass the same arguments, but each
// rank passes its own memory. If one rank has an error, all ranks throw this error.
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
  /// The folder of the stage, on a tier of this node. Nodes may have different folders. A write ends when its bytes are
  /// durable in the folder. Later the bytes are copied to the file in the background. If `stage_folder` is empty, bytes
  /// are written directly to the file.
  std::string stage_folder = {};
  /// The maximum size of the stage on a node, in bytes. The aggregators of the node share this room. The value 0 means
  /// that a stage may use all free bytes.
  std::uint64_t stage_bytes = 0;
  /// Other stage folders of this node. An earlier program may have left steps of this file in these folders. The
  /// library treats these steps like steps that an earlier program has left in `stage_folder`: it drains or discards
  /// them.
  std::vector<std::string> settle_folders = {};
  /// If true, each node writes its own file. The index `path`.index lists these files (node_files.hpp).
  bool node_files = false;
  Faults faults = {};  ///< simulated errors of storage at aggregators, for tests
};

/// A write or a read of one step. File::begin_write() and File::begin_read() return an object of this class.
///
/// While the caller computes, threads copy bytes inside the node and perform the I/O. Messages between nodes are sent
/// and received only during calls of test() and wait(). The destructor of an operation waits until the operation has
/// ended, and ignores errors. Operation objects can be moved, but not copied.
class Operation {
 public:
  Operation() = default;
  Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step);

  /// Returns true if the operation has ended without an error, and false if it has not ended. Throws the same errors as
  /// wait().
  bool test();
  /// Waits until the operation has ended. Throws StorageError (with rank, file and offset), InputError (if the memory
  /// is too small) or CommunicationError. All ranks throw the same error.
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
  /// Opens an existing file for reading. If `writable` is true, the file can also be written. Throws StorageError.
  static File open(const Plan &plan, const std::string &path, bool writable = false, const FileOptions &options = {});

  File(File &&) noexcept;
  File &operator=(File &&) noexcept;
  /// If close() was not called, the destructor waits until this rank's operations have ended and its stage is drained.
  /// The destructor ignores errors and writes no index of node files.
  ~File();

  /// These functions begin to write or read one step. `memory` has one span for each variable of this rank. Each span
  /// must have at least the declared size, and must stay valid until the operation has ended. The caller must not
  /// change bytes of a span during a write. `base` is added to all offsets of the file. `problem` is an error that this
  /// rank has already found, or empty. If `problem` is not empty, the rank takes part in the operation without data,
  /// and all ranks throw the error. The bytes of this rank in the file stay unchanged.
  Operation begin_write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
                        const std::string &problem = {});
  Operation begin_read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0,
                       const std::string &problem = {});

  /// Performs the operation, and returns when it has ended. Throws the same errors as Operation::wait().
  Timing write(std::span<const std::span<const std::byte>> memory, std::uint64_t base = 0,
               const std::string &problem = {});
  Timing read(std::span<const std::span<std::byte>> memory, std::uint64_t base = 0, const std::string &problem = {});

  /// Waits until all written bytes are durable in the file. Staged bytes are drained first.
  void flush();
  /// Waits until all operations have ended and the stage is drained. After close(), the caller can only destroy the
  /// file. Throws an error if bytes cannot be drained. These bytes stay in the stage.
  void close();

  const std::string &path() const;
  /// Returns one line for each step that an earlier program has left in the stage of any node. The line says whether
  /// the step is now in the file or is lost.
  const std::vector<std::string> &notes() const;

 private:
  explicit File(std::unique_ptr<Opened> opened);
  std::unique_ptr<Opened> opened_;
};

}  // namespace outcrop::aggregate
