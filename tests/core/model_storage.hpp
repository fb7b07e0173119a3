// A model of storage, for tests of protocols that must survive power cuts, kills and errors. All that happens follows from a seed.
//
//     a file      what programs see, and what the device has; each sector that has not been flushed may be either after a power
//                 cut, or what it was in between. A flush that fails leaves both as they are, and no later one knows of it
//     a folder    names that programs see, and those on the device; of what has not been flushed a power cut keeps the first
//                 changes (as journals do), or any whose names are not those of a change that is lost (as POSIX allows)
//     a process   is killed before or after any operation, or in the middle of one; two take turns at any of them
//     an error    any operation may fail, having done nothing, some of it, or all
//
// Mutations are mistakes on purpose, for a test of the model: it must find them.
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

#include "outcrop/storage/folder.hpp"

namespace outcrop::model {

using Bytes = std::vector<std::byte>;

/// What ends a process. Nobody who handles errors handles this.
struct Killed {};

enum class Mutation {
  none,
  no_flush_before_rename,     ///< text gets its name before it is on the device
  flush_of_the_wrong_file,    ///< what is flushed is another file of the folder
  clean_up_without_the_lock,  ///< locks are had by everyone
  overwrite_of_current_slot,  ///< both slots of a tile are one
  record_before_data,         ///< data are flushed after what says that they are there
};

/// What may go wrong.
struct Weather {
  bool power_cuts = false;        ///< else processes are killed, and what they have done stays
  bool keeps_order = true;        ///< of names, in a power cut
  double error_rate = 0;          ///< of operations
  std::uint64_t kill_within = 0;  ///< operations of a process, of which one ends it; 0: none does
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

  /// Runs programs as processes, one after the other, or two that take turns; returns when all have ended. What they throw but
  /// Killed is thrown again.
  void run(const std::vector<std::function<void(Files &)>> &programs, const Weather &weather);

  /// Without anything going wrong.
  void run_well(const std::function<void(Files &)> &program) { run({program}, {}); }

  /// What programs would see.
  std::set<std::string> names_in(const std::string &folder) const;
  Bytes content(const std::string &folder, const std::string &name) const;

  std::uint64_t operations() const { return operations_; }
  bool had_errors() const { return had_errors_; }  ///< in the last run

  Random random;

 private:
  friend class ModelFile;
  friend class ModelFolder;
  friend class ModelFiles;
  friend class ModelLock;

  static constexpr std::size_t sector_bytes = 512;

  struct Inode {
    Bytes seen, durable;
    std::map<std::size_t, std::vector<Bytes>> dirty;  // versions of each sector since it was flushed
    std::vector<std::size_t> sizes;                   // since then
  };
  using InodeRef = std::shared_ptr<Inode>;
  using Names = std::map<std::string, InodeRef>;
  struct Change {
    std::string from, to;  // a rename; to alone: made; from alone: removed
    InodeRef inode;
  };
  struct Directory {
    Names seen, durable;
    std::vector<Change> changes;  // not flushed
  };
  struct Process {
    int number = 0;
    std::uint64_t left = 0;  // operations until it is killed; 0: it is not
    bool is_dead = false, has_ended = false;
  };

  // An operation begins: another process may go on first, and this one may end here. Whether it ends after it.
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
  std::map<std::string, int> held_;  // by which process
  std::vector<InodeRef> flushed_late_;
  std::uint64_t operations_ = 0;
  bool had_errors_ = false, is_off_ = false;

  // Turns of processes. Each process is a thread; only one of them runs at a time.
  std::vector<std::unique_ptr<Process>> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
};

}  // namespace outcrop::model
