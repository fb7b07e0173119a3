// A stage keeps the steps of one writer on a fast tier of the writer's node. A drain later copies the staged steps to
// their file, which is called the target.
//
//     begin ──► append, append, ... ──► seal ─────────────► drained in the background ──► evicted when room is needed
//               step-7.writer-3.data    step-7.writer-3.list  step-7.writer-3.done
//
//     seal    makes the data durable, then writes the list durably (text.hpp); now the step is staged
//     drain   reads each run, tests its checksum, writes it to the target, makes the target durable, renames list to done
//     evict   makes the folder durable, then removes the data, then the list
//
// The process of the writer may be killed at any moment. If a step has no list, its bytes are lost, and recovery
// reports the step. If a step has a list, recovery drains this step and all later steps again. Later steps are drained
// again because a power cut may undo the renaming of an earlier list to `done`, but keep the renaming of a later list.
// A lock on a file of the folder tells whether a writer is alive. recover_stage() drains the steps of dead writers.
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

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- the files of a stage (drain.cpp) ------------------------------------------------------------------------------

/// A contiguous run of `length` bytes. The run begins at offset `data` of the data file, and at offset `target` of the
/// target. `checksum` is the CRC32C of its bytes.
struct StagedRun {
  std::uint64_t target = 0;
  std::uint64_t length = 0;
  std::uint64_t data = 0;
  std::uint32_t checksum = 0;
  bool operator==(const StagedRun &) const = default;
};

/// The list of all contiguous runs that a writer has staged in a step. The list of a step is stored as a listing
/// (text.hpp). A run of at least one page has the same offset within a page in the data file and in the target.
struct StageList {
  std::string target;  ///< the path of the file that these bytes belong to
  std::uint64_t step = 0;
  std::uint32_t writer = 0;
  std::vector<StagedRun> runs{};
  std::string identity{};  ///< the identity of the target when it was opened (sink.hpp); may be empty
  bool operator==(const StageList &) const = default;
};

std::string to_text(const StageList &list);
/// Parses `text`, the content of the list file `path`. Throws CorruptionError if parts of the list are missing.
StageList stage_list_of(const std::string &text, const std::string &path);

/// The kinds of files in the folder of a stage.
enum class StageFile { data, list, done };

/// The parts of the name of a file in the folder of a stage, such as "step-7.writer-3.data".
struct StageName {
  std::uint64_t step = 0;
  std::uint32_t writer = 0;
  StageFile kind = StageFile::data;

  std::string text() const;
  /// Parses the name of a file. Returns no value if the name does not have the form of such a name.
  static std::optional<StageName> of(const std::string &text);
};

/// Reads the list with the name `name` in `folder`. Throws CorruptionError, StorageError.
StageList read_list(outcrop::Folder &folder, const StageName &name);

/// Reads a run from the data file into `bytes`, tests the checksum of the run, and returns the bytes of the run. Throws
/// CorruptionError, StorageError.
std::span<const std::byte> read_run(const OpenFile &data, const StagedRun &run, std::byte *bytes);

/// Returns the address in `memory` to which a run of the data file is read. The offset of this address within a page is
/// the same as the run's offset in the data file within a page. Therefore whole pages of the run can bypass the page
/// cache. `memory` must be one page longer than the run.
std::byte *place_of(const StagedRun &run, const AlignedMemory &memory);

/// Removes the files of a step whose list is marked `done`. The function removes the data first, because a `done` file
/// without data does no harm.
void remove_step(outcrop::Folder &folder, std::uint64_t step, std::uint32_t writer);

/// Removes the files of a step that must not be drained. The function first removes the list durably. A step without a
/// list does not count as staged.
void drop_step(outcrop::Folder &folder, std::uint64_t step, std::uint32_t writer);

/// Returns the maximum number of bytes that a step of `bytes` bytes occupies in the folder of a stage. `runs` is the
/// number of its contiguous runs with a length of one page or more.
std::uint64_t room_of_step(std::uint64_t bytes, std::size_t runs);

/// Takes the lock of the writer with the number `writer` in `folder`, and returns this lock. Throws InputError if
/// another process holds the lock of this writer.
std::unique_ptr<FolderLock> lock_stage(outcrop::Folder &folder, std::uint32_t writer);

// --- draining and recovery (drain.cpp) -----------------------------------------------------------------------------

/// Drains one step. Tests the checksum of each run, copies the run to `target`, makes the target durable, and marks the
/// step in `folder` as done. Throws InputError if the list is for another file than `target`. Throws CorruptionError,
/// StorageError. After an error, the caller may call the function again.
void drain_step(Files &files, outcrop::Folder &folder, const StageList &list, const std::string &target);

inline constexpr double wait_for_ever = std::numeric_limits<double>::infinity();

struct Recovery {
  std::vector<StageList> drained{};  ///< steps that were staged and are now in the target
  std::vector<StageName> lost{};     ///< steps whose writers ended before the steps were completely staged
  /// the reasons why staged steps could not be drained; these steps stay in the stage
  std::vector<std::string> failed{};
  std::vector<std::uint32_t> busy{};  ///< writers that are alive; they drain their own steps
};

/// Drains the steps of dead writers in `folder` into `target`, in the order of the steps. Removes lost steps and
/// unnecessary files. If a step cannot be drained, the later steps of the same writer are not drained, because they may
/// have newer bytes for the same places of `target`. The drain of a step also fails if its list names another file than
/// `target`, or another identity than `identity`. An empty identity matches every identity. If `folder` does not exist,
/// the result is empty. If another caller is recovering the folder, the function waits until the other recovery has
/// ended. Throws StorageError if the folder cannot be read. Throws InputError if the folder belongs to another user, or
/// if the other recovery has not ended after `seconds`.
Recovery recover_stage(const std::string &folder, const std::string &target, double seconds = wait_for_ever,
                       Files &files = Files::system(), const std::string &identity = {});

/// Removes the steps of dead writers in `folder`. The caller makes a new target. In the result, `lost` lists all steps
/// that were not drained, even steps that were completely staged.
Recovery discard_stage(const std::string &folder, double seconds = wait_for_ever, Files &files = Files::system());

// --- a writer's stage ----------------------------------------------------------------------------------------------

struct StageSpec {
  std::string folder;        ///< a folder on the tier; created if missing
  std::string target;        ///< the file that the bytes belong to; its name must already be durable
  std::uint32_t writer = 0;  ///< the number of this writer; no other writer to this folder may have the same number
  /// the maximum size of all staged data; the value 0 means that only the file system limits the size
  std::uint64_t room_bytes = 0;
  /// If `has_thread` is true, a separate thread drains steps. If `has_thread` is false, a thread that would wait for
  /// the drain drains the steps itself.
  bool has_thread = true;
  Files &files = Files::system();
  std::string identity = {};  ///< the identity of the target (sink.hpp); may be empty
};

class Stage {
 public:
  /// Opens the stage. Throws InputError if the folder is in use, or if the folder contains steps of an earlier writer
  /// with the same number.
  explicit Stage(StageSpec spec);

  /// The destructor waits until all sealed steps are drained, or until draining has failed. If the current step is not
  /// sealed, the destructor drops it.
  ~Stage();
  Stage(const Stage &) = delete;
  Stage &operator=(const Stage &) = delete;

  /// Begins a step with at most `bytes` bytes. `runs` is the maximum number of its contiguous runs with a length of one
  /// page or more. If the stage has too little room, the function waits until the oldest steps are drained, and evicts
  /// these steps. `step` must be higher than the number of the previous step. Throws StorageError if the stage has too
  /// little room even then, or if draining has failed.
  void begin(std::uint64_t step, std::uint64_t bytes, std::size_t runs);

  /// Adds a contiguous run of bytes to the current step. Throws StorageError.
  void append(std::uint64_t target, std::span<const std::byte> bytes);

  /// Makes the current step durable. Then the step is staged. If seal() throws StorageError, the step is not staged.
  void seal();

  /// Removes the current step. Does nothing if no step has begun.
  void drop();

  /// Reads bytes of the target from the stage. Uses only the newest step that has some of the requested bytes. Returns
  /// false if no step has any of the requested bytes, or if the newest such step does not have all of them. Throws
  /// CorruptionError, StorageError.
  bool read(std::uint64_t target, std::span<std::byte> bytes);

  /// Waits until all sealed steps are durable in the target. If draining has failed, finish() throws the error of the
  /// drain. After such an error, the steps that are not drained stay in the stage.
  void finish();

  /// Drains the oldest step that is not drained yet. Call drain_next() only for a stage without a thread. Returns false
  /// if all steps were already drained, or if draining has failed.
  bool drain_next();

  /// Waits until all sealed steps are durable in the target. Then removes all steps from the stage. Throws the same
  /// errors as finish(). After forget(), read() finds no old bytes, so other writers may write to the target.
  void forget();

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
  std::unique_ptr<FolderLock> writer_lock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StagedStep> steps_;  // the sealed steps, from the oldest to the newest
  std::uint64_t used_bytes_ = 0;
  std::exception_ptr failure_;
  bool ending_ = false;
  std::unique_ptr<OpenFile> file_;  // the data file of the current step
  StagedStep begun_;
  std::unique_ptr<OpenFile> last_read_;
  std::uint64_t last_read_step_ = 0;
  std::thread drainer_;
};

// --- the sink ------------------------------------------------------------------------------------------------------

/// A sink that combines the shared file with a stage. Writes go to the stage. If the newest staged step with bytes at a
/// place has all bytes of a read, the read uses the stage. Otherwise the read waits until all steps are drained, and
/// then reads from the shared file. The folder of the stage has one subfolder for each file. The subfolder contains the
/// data of all domains of the file.
class StagedFile final : public Sink {
 public:
  /// `step` has the number and the total size of the contiguous runs of a step in this domain. Throws the same errors
  /// as Stage::Stage().
  StagedFile(StageSpec spec, const RunTotals &step, CacheMode mode, bool ample_room);

  void begin_step(std::uint64_t step, std::uint64_t base) override;
  void end_step() override { stage_.seal(); }
  void drop_step() override { stage_.drop(); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override;
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // the stage does not contain the bytes in holes
  void flush() override { stage_.finish(); }
  bool flushes_for_node() const override { return false; }
  void forget() override { stage_.forget(); }

 private:
  const RunTotals step_;
  SharedFile file_;
  Stage stage_;
};

/// Returns the folder in `stage_folder` that contains the staged steps of `file`.
std::string stage_of_file(const std::string &stage_folder, const std::string &file);

/// Handles the steps of `file` that an earlier program may have left in `folder`. If `discard` is true, the function
/// removes these steps. If `discard` is false, the function drains these steps into `file`, which has the identity
/// `identity`. One rank of each node calls settle_stage() before the node uses the stage. Returns one line about each
/// step. Throws InputError in three cases: a step cannot be drained, a writer is alive, or another rank is still
/// recovering the folder after `seconds`. Throws StorageError.
std::vector<std::string> settle_stage(const std::string &folder, const std::string &file, bool discard, double seconds,
                                      const std::string &identity);

/// Throws InputError if a step needs more room than this writer has in the stage, or if a step has more contiguous runs
/// than a list can have. `room_bytes` is the size of this room in bytes; 0 means no limit.
void check_room(std::uint64_t room_bytes, const RunTotals &step);

}  // namespace outcrop::aggregate
