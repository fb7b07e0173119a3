// Steps of one writer on a fast tier of its node, and their way to the file that they belong to.
//
//     begin ──► append, append, ... ──► seal ─────────────► drained in the background ──► evicted when room is needed
//               step-7.writer-3.data    step-7.writer-3.list  step-7.writer-3.done
//
//     seal    the data durable, then the list beside, durable, renamed, the folder durable: the step is staged
//     drain   each run is read, its checksum tested, written to the target; the target durable; list becomes done
//     evict   the folder durable, then the data go, then their list
//
// Whoever is killed at any moment leaves either no list, and the step's bytes are lost and can be named, or a list, and
// draining begins again at that step. Draining twice writes the same bytes, because steps are drained in their order. Where a
// power cut has kept that a later step is done and not that an earlier one is, recovery drains the later one again.
// A lock on a file of the folder says whether a writer lives; what a dead one has left is for recover_stage (drain.hpp).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "outcrop/aggregate/sinks/stage_list.hpp"
#include "outcrop/storage/files.hpp"

namespace outcrop::aggregate {

struct StageSpec {
  std::string folder;            ///< on the tier; made when it is not there
  std::string target;            ///< the file that the bytes belong to; must exist, durable
  std::uint32_t writer = 0;      ///< a number that no other writer to this folder has
  std::uint64_t room_bytes = 0;  ///< that data may take here; 0: what the file system has
  bool drains_beside = true;     ///< by a thread; else by whoever waits, and drain_next()
  Files &files = Files::system();
};

class Stage {
 public:
  /// Throws InputError when the folder is in use, or holds what an earlier writer of this number has not drained.
  explicit Stage(StageSpec spec);

  /// Waits until all that is sealed is drained, or draining has failed. A step that is not sealed is forgotten.
  ~Stage();
  Stage(const Stage &) = delete;
  Stage &operator=(const Stage &) = delete;

  /// Room for `bytes`, at most `runs` runs of which have a page or more, is taken, for which drained steps may go, or are waited for. `step` is
  /// higher than the last one. Throws StorageError where there is no room, or draining has failed.
  void begin(std::uint64_t step, std::uint64_t bytes, std::size_t runs);

  /// One more run of the step that has begun. Throws StorageError.
  void append(std::uint64_t target, std::span<const std::byte> bytes);

  /// Makes the step durable; from now on it gets to the target. Throws StorageError, and the step is not staged then.
  void seal();

  /// Forgets the step that has begun, if one has.
  void drop();

  /// Reads bytes of the target that are staged here, drained or not; false when they are not, or not all, or not in one
  /// step. Throws CorruptionError, StorageError.
  bool read(std::uint64_t target, std::span<std::byte> bytes);

  /// Waits until all that is sealed is in the target, durable. Rethrows what has failed; the steps stay staged then.
  void finish();

  /// Drains the oldest step that is not; false when there is none, or draining has failed. Without a thread that does.
  bool drain_next();

  /// As finish(), and keeps nothing for read(): from now on others may write to the target.
  void forget();

  std::uint64_t sealed_bytes() const;
  std::uint64_t drained_bytes() const;

 private:
  struct Step {
    StageList list;
    std::uint64_t file_bytes = 0;
    bool is_drained = false;
  };

  void drain();
  bool drain_next(std::unique_lock<std::mutex> &lock);
  template <typename Condition>
  void wait_for_drain(std::unique_lock<std::mutex> &lock, Condition &&condition);
  void evict(std::unique_lock<std::mutex> &lock, std::uint64_t bytes);
  void remove_drained() noexcept;
  std::string name(std::uint64_t step, StageFile kind) const;

  const StageSpec spec_;
  std::unique_ptr<outcrop::Folder> folder_;
  std::unique_ptr<Held> held_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Step> steps_;  // sealed ones, oldest first
  std::uint64_t used_bytes_ = 0, sealed_bytes_ = 0, drained_bytes_ = 0;
  std::exception_ptr failure_;
  bool is_ending_ = false;
  std::unique_ptr<OpenFile> file_;  // of the step that has begun
  Step begun_;
  std::unique_ptr<OpenFile> read_last_;
  std::uint64_t read_last_step_ = 0;
  std::thread drainer_;
};

/// What a step takes of the room.
std::uint64_t room_of_step(std::uint64_t bytes, std::size_t runs);

/// Holds `folder` as `writer`. Throws InputError when another process does.
std::unique_ptr<Held> hold_stage(outcrop::Folder &folder, std::uint32_t writer);

}  // namespace outcrop::aggregate
