// Defines a model of storage for tests of protocols that must survive power cuts, kills and errors. A seed determines
// all events. The model has these parts:
//
//     a file      has bytes that programs see, and bytes on the device. After a power cut, a sector that was not
//                 flushed can have its old content, its new content, or a content that it had between them. A flush
//                 that fails can write only some sectors. Later flushes do not write the sectors that are missing.
//     a folder    has two lists of names: the names that programs see, and the names that are stored on the device. A
//                 power cut can lose changes of names that were not flushed. The seed decides which changes are kept:
//                 the first changes (as journals keep them), or any changes that do not depend on a lost change (as
//                 POSIX allows).
//     a process   can be killed before, during or after any operation. At any operation, another process can get its
//                 turn.
//     an error    can occur in any operation: before the operation begins, in the middle of the operation, or after the
//                 operation has done all of its work.
//
// Mutations are deliberate mistakes in protocols. A test checks that the model detects each mutation.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop::model {

using Bytes = std::vector<std::byte>;

/// Thrown to end a process. Code that handles errors does not catch exceptions of the type `Killed`.
struct Killed {};

enum class Mutation {
  none,
  no_flush_before_rename,     ///< a file is renamed before its bytes are on the device
  flush_of_the_wrong_file,    ///< a flush writes another file of the folder instead of the requested file
  clean_up_without_the_lock,  ///< every process gets every lock, even if another process holds the lock
  overwrite_of_current_slot,  ///< both slots of a tile are the same place in the file
  record_before_data,         ///< the record is flushed before the data to which the record refers
};

/// The faults that can happen in one call of run().
struct Weather {
  bool power_cuts = false;  ///< true: the power fails; false: processes are killed, and their changes stay
  /// true: a power cut keeps the first changes of names; false: a power cut may keep any changes of names
  bool keeps_order = true;
  double error_rate = 0;          ///< the probability with which an operation fails
  std::uint64_t kill_within = 0;  ///< each process is killed within this number of operations; 0: never
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : numbers_(seed) {}
  std::uint64_t below(std::uint64_t end) { return numbers_() % end; }
  bool happens(double rate) { return static_cast<double>(numbers_() >> 11) * 0x1p-53 < rate; }

 private:
  std::mt19937_64 numbers_;
};

class Storage {
 public:
  Storage(std::uint64_t seed, Mutation mutation) : random(seed), mutation_(mutation) {}

  /// Runs one program as a process, or two programs as processes that take turns. Returns when all processes have
  /// ended. If a process throws an exception that is not `Killed`, rethrows the first such exception.
  void run(const std::vector<std::function<void(Files &)>> &programs, const Weather &weather);

  /// Runs a program without faults.
  void run_well(const std::function<void(Files &)> &program) { run({program}, {}); }

  /// names_in() returns the names that programs see in a folder, and content() returns the bytes that programs see in a
  /// file.
  std::set<std::string> names_in(const std::string &folder) const;
  Bytes content(const std::string &folder, const std::string &name) const;

  std::uint64_t operations() const { return operations_; }
  bool had_errors() const { return had_errors_; }  ///< true if an operation of the last run failed

  Random random;

 private:
  friend class ModelFile;
  friend class ModelFolder;
  friend class ModelFiles;
  friend class ModelLock;

  static constexpr std::size_t sector_bytes = 512;

  struct Inode {
    Bytes seen, durable;
    std::map<std::size_t, std::vector<Bytes>> dirty;  // all contents that a sector has had since the last flush
    std::vector<std::size_t> sizes;                   // all sizes that the file has had since the last flush
  };
  using InodeRef = std::shared_ptr<Inode>;
  using Names = std::map<std::string, InodeRef>;
  struct Change {
    std::string from, to;  // a rename sets both; a creation sets only `to`; a removal sets only `from`
    InodeRef inode;
  };
  struct Directory {
    Names seen, durable;
    std::vector<Change> changes;  // changes of names since the last flush
  };
  struct Process {
    int number = 0;
    std::uint64_t left = 0;  // number of operations after which the process is killed; 0: never
    bool is_dead = false, has_ended = false;
  };

  // Begins an operation. Before the operation, another process can run. At the operation, this process can be killed.
  // Returns true if the process must be killed after the operation.
  bool begin(Process &process, const char *what, const std::string &path);
  void note(const Process &process, const char *what, const std::string &path) const;
  void end(Process &process, bool is_last);
  bool fails();
  void let_go_on(Process &process);
  void kill(Process &process);
  void cut_power();
  Directory &directory(const std::string &path);
  static void apply(Names &names, const Change &change);
  void write(Inode &inode, std::uint64_t offset, const std::byte *data, std::size_t length);
  void flush(Inode &inode);
  void flush_badly(Inode &inode);
  void lose(Inode &inode);
  void lose(Directory &directory);

  const Mutation mutation_;
  Weather weather_;
  std::map<std::string, Directory> directories_;
  std::map<std::string, int> held_;  // key: lock; the process that holds it
  std::vector<InodeRef> flushed_late_;
  std::uint64_t operations_ = 0;
  bool had_errors_ = false, is_off_ = false;

  // Each process is a thread. Only the process whose number is `turn_` runs.
  std::vector<std::unique_ptr<Process>> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
};

}  // namespace outcrop::model
