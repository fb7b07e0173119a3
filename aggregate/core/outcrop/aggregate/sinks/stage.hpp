// A stage: steps of one writer on a fast tier of its node, and their way to the file that they belong to, the target.
//
//     begin ──► append, append, ... ──► seal ─────────────► drained in the background ──► evicted when room is needed
//               step-7.writer-3.data    step-7.writer-3.list  step-7.writer-3.done
//
//     seal    the data are made durable; then the list is written durably (text.hpp): the step is staged
//     drain   each run is read, its checksum tested, written to the target; the target is made durable; list becomes done
//     evict   the folder is made durable; then the data are removed, then their list
//
// A kill at any moment leaves either no list, and then the step's bytes are lost and can be named, or a list, and then
// draining begins again at that step. Draining twice writes the same bytes, because steps are drained in order. If a power
// cut has kept that a later step is done and not that an earlier one is, recovery drains the later one again.
// A lock on a file of the folder says whether a writer lives. recover_stage() drains what a dead writer has left.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "outcrop/aggregate/decision/domains.hpp"
#include "outcrop/aggregate/sinks/shared_file.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/folder.hpp"

namespace outcrop::aggregate {

// --- the files of a stage (drain.cpp) ------------------------------------------------------------------------------

/// `length` bytes at `data` of the data file that belong at `target` of the target file. `checksum` is their CRC32C.
struct StagedRun {
  std::uint64_t target = 0;
  std::uint64_t length = 0;
  std::uint64_t data = 0;
  std::uint32_t checksum = 0;
  bool operator==(const StagedRun &) const = default;
};

/// What one writer has staged of one step, as a listing (text.hpp). In the data file each run has the same offset within a
/// page as in the target.
struct StageList {
  std::string target;  ///< path of the file that these bytes belong to
  std::uint64_t step = 0;
  std::uint32_t writer = 0;
  std::vector<StagedRun> runs{};
  bool operator==(const StageList &) const = default;
};

std::string to_text(const StageList &list);
/// The list in `text`, the content of file `path`. Throws CorruptionError when it is incomplete.
StageList stage_list_of(const std::string &text, const std::string &path);

/// The kinds of files in a stage's folder.
enum class StageFile { data, list, done };

/// The name of a file in a stage's folder, and what it tells.
struct StageName {
  std::uint64_t step = 0;
  std::uint32_t writer = 0;
  StageFile kind = StageFile::data;

  std::string text() const;
  /// Nothing for other names.
  static std::optional<StageName> of(const std::string &text);
};

/// The list of that name in `folder`. Throws CorruptionError, StorageError.
StageList read_list(outcrop::Folder &folder, const StageName &name);

/// Reads a run from the data file to `bytes`, and tests its checksum. Throws CorruptionError, StorageError.
std::span<const std::byte> read_run(const OpenFile &data, const StagedRun &run, std::byte *bytes);

/// Where in `memory`, which is a page longer than the run, the run has the same offset within a page as in the data file and
/// in the target. Then whole pages go around the page cache.
std::byte *place_of(const StagedRun &run, const AlignedMemory &memory);

/// Removes the files of a step that is done, the data first: a `done` without data is harmless.
void remove_step(outcrop::Folder &folder, std::uint64_t step, std::uint32_t writer);

/// Removes the files of a step that must not be drained, the list first and durably: from then on it is not staged.
void drop_step(outcrop::Folder &folder, std::uint64_t step, std::uint32_t writer);

/// The room that a step takes in the folder.
std::uint64_t room_of_step(std::uint64_t bytes, std::size_t runs);

/// Locks `folder` for `writer`. Throws InputError when another process holds that lock.
std::unique_ptr<FolderLock> hold_stage(outcrop::Folder &folder, std::uint32_t writer);

// --- draining and recovery (drain.cpp) -----------------------------------------------------------------------------

/// Copies each run to `target` after testing its checksum, makes the target durable, and notes in `folder` that the step is
/// done. Throws InputError if the list is of another file, CorruptionError, StorageError. It may then be called again.
void drain_step(Files &files, outcrop::Folder &folder, const StageList &list, const std::string &target);

inline constexpr double wait_for_ever = std::numeric_limits<double>::infinity();

struct Recovery {
  std::vector<StageList> drained{};   ///< staged before a crash, and now in their targets
  std::vector<StageName> lost{};      ///< steps of writers whose bytes were not all staged when they ended
  std::vector<std::string> failed{};  ///< why a staged step could not be drained; it stays
  std::vector<std::uint32_t> busy{};  ///< writers that live and drain for themselves
};

/// Drains what dead writers have left in `folder`, in the order of steps, and removes what is lost or no longer needed. A
/// step that fails keeps the later ones of its writer from being drained, because they may be newer bytes of the same places.
/// Only `target` is written to: a list for another file fails. A folder that does not exist holds nothing. One caller
/// recovers at a time. Throws StorageError when the folder cannot be read, InputError when it belongs to another user or another caller
/// has not ended within `seconds`.
Recovery recover_stage(const std::string &folder, const std::string &target, double seconds = wait_for_ever,
                       Files &files = Files::system());

/// Removes what dead writers have left in `folder`, for a target that is created anew. Steps that were staged are in `lost`.
Recovery discard_stage(const std::string &folder, double seconds = wait_for_ever, Files &files = Files::system());

// --- a writer's stage ----------------------------------------------------------------------------------------------

struct StageSpec {
  std::string folder;            ///< on the tier; created if missing
  std::string target;            ///< the file that the bytes belong to; must exist, durably
  std::uint32_t writer = 0;      ///< a number that no other writer to this folder has
  std::uint64_t room_bytes = 0;  ///< the maximum that data may take here; 0: what the file system has
  bool drains_beside = true;     ///< by a thread; else by waiting callers and drain_next()
  Files &files = Files::system();
};

class Stage {
 public:
  /// Throws InputError when the folder is in use, or holds steps of an earlier writer of this number.
  explicit Stage(StageSpec spec);

  /// Waits until all sealed steps are drained, or draining has failed. A step that is not sealed is forgotten.
  ~Stage();
  Stage(const Stage &) = delete;
  Stage &operator=(const Stage &) = delete;

  /// Takes room for `bytes`, of which at most `runs` runs have a page or more. Drained steps are evicted for it, or waited
  /// for. `step` is higher than the last one. Throws StorageError if there is no room, or draining has failed.
  void begin(std::uint64_t step, std::uint64_t bytes, std::size_t runs);

  /// Adds a run to the step that has begun. Throws StorageError.
  void append(std::uint64_t target, std::span<const std::byte> bytes);

  /// Makes the step durable; from now on it gets to the target. Throws StorageError, and then the step is not staged.
  void seal();

  /// Forgets the step that has begun, if there is one.
  void drop();

  /// Reads bytes of the target that are staged here, drained or not. False if not all of them are here in one step. Throws
  /// CorruptionError, StorageError.
  bool read(std::uint64_t target, std::span<std::byte> bytes);

  /// Waits until all sealed steps are in the target, durably. Rethrows an error of draining; the steps then stay staged.
  void finish();

  /// Drains the oldest step that is not drained, in a stage without a thread. False when there is none, or draining has
  /// failed.
  bool drain_next();

  /// As finish(), and keeps nothing for read(): from now on others may write to the target.
  void forget();

  std::uint64_t sealed_bytes() const;
  std::uint64_t drained_bytes() const;

 private:
  struct StagedStep {
    StageList list;
    std::uint64_t file_bytes = 0;
    bool drained = false;
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
  std::unique_ptr<FolderLock> held_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StagedStep> steps_;  // sealed ones, oldest first
  std::uint64_t used_bytes_ = 0, sealed_bytes_ = 0, drained_bytes_ = 0;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::unique_ptr<OpenFile> file_;  // of the step that has begun
  StagedStep begun_;
  std::unique_ptr<OpenFile> read_last_;
  std::uint64_t read_last_step_ = 0;
  std::thread drainer_;
};

// --- the sink ------------------------------------------------------------------------------------------------------

/// The shared file through a stage: written to the stage; read from there if the bytes are there, else from the file once all
/// is drained. Each file has a folder of its own in the stage's folder, and each domain is a writer there.
class StagedFile final : public Sink {
 public:
  /// `step`: what a step of this domain has. Throws InputError, StorageError as Stage does.
  StagedFile(StageSpec spec, const RunTotals &step, CacheMode mode, bool ample_room);

  void begin_step(std::uint64_t step, std::uint64_t base) override;
  void end_step() override { stage_.seal(); }
  void drop_step() override { stage_.drop(); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override;
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // they are not in the stage
  void flush() override { stage_.finish(); }
  bool flushes_for_node() const override { return false; }
  void forget() override { stage_.forget(); }

 private:
  const RunTotals step_;
  SharedFile file_;
  Stage stage_;
};

/// Where steps of `file` are staged in `stage_folder`.
std::string stage_of_file(const std::string &stage_folder, const std::string &file);

/// Drains what an earlier run has staged in `folder` into `file`, or discards it. One rank of each node calls it before
/// anything else. Returns what was there, one line each. Throws InputError if it cannot be drained, a writer lives, or
/// another rank has not recovered it within `seconds`; StorageError.
std::vector<std::string> settle_stage(const std::string &folder, const std::string &file, bool discard, double seconds);

/// Throws InputError when `room_bytes`, of this writer, are too few for one step. 0 are enough.
void check_room(std::uint64_t room_bytes, const RunTotals &step);

}  // namespace outcrop::aggregate
