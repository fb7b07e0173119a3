#include "outcrop/aggregate/sinks/stage.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {

// --- a writer's stage ----------------------------------------------------------------------------------------------

namespace {

// Returns the runs of a sealed step that overlap the bytes of the target from offset `begin` to `end - 1`. The returned
// runs are sorted and do not overlap each other.
std::span<const StagedRun> runs_in(const std::vector<StagedRun> &runs, std::uint64_t begin, std::uint64_t end) {
  const auto first =
      std::ranges::upper_bound(runs, begin, {}, [](const StagedRun &run) { return run.target + run.length; });
  const auto last = std::ranges::lower_bound(runs, end, {}, &StagedRun::target);
  return first < last ? std::span(first, last) : std::span<const StagedRun>();
}

// Returns how many bytes of the target from offset `begin` to `end - 1` are in `runs`.
std::uint64_t covered(std::span<const StagedRun> runs, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t bytes = 0;
  for (const StagedRun &run : runs) {
    const std::uint64_t first = std::max(begin, run.target), last = std::min(end, run.target + run.length);
    if (first < last) bytes += last - first;
  }
  return bytes;
}

// Copies bytes of a run to `bytes`. `bytes` stands for the bytes of the target from offset `begin` on. The function
// copies only the part of the run in this range. However, the function reads the complete run, because the checksum
// covers all bytes of the run.
void copy_from(const OpenFile &data, const StagedRun &run, std::uint64_t begin, std::span<std::byte> bytes) {
  const std::uint64_t end = begin + bytes.size();
  const std::uint64_t first = std::max(begin, run.target), last = std::min(end, run.target + run.length);
  if (first >= last) return;
  if (last - first == run.length) {
    read_run(data, run, bytes.data() + (first - begin));
    return;
  }
  const AlignedMemory memory(run.length + AlignedMemory::page_bytes);
  const std::span<const std::byte> whole = read_run(data, run, place_of(run, memory));
  std::memcpy(bytes.data() + (first - begin), whole.data() + (first - run.target), last - first);
}

}  // namespace

Stage::Stage(StageSpec spec) : spec_(std::move(spec)) {
  if (spec_.target.find('\n') != std::string::npos) throw InputError("the target of a stage has a newline in its name");
  spec_.files.open(spec_.target, true, false);  // checks that the target exists and is writable
  folder_ = spec_.files.own_folder(spec_.folder, true);
  writer_lock_ = lock_stage(*folder_, spec_.writer);
  for (const std::string &each : folder_->names())
    if (const auto found = StageName::of(each); found && found->writer == spec_.writer)
      throw InputError(spec_.folder + " contains " + each + " of an earlier run; recover it first");
  if (spec_.has_thread) drainer_ = std::thread([this] { drain(); });
}

Stage::~Stage() {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    if (!spec_.has_thread)
      while (drain_next(lock)) continue;
  }
  changed_.notify_all();
  if (drainer_.joinable()) drainer_.join();
  drop();
  remove_drained();
}

// Removes the files of drained steps. The data may be removed only after the renaming of the lists to `done` is
// durable. If a file cannot be removed now, the next recovery of the folder removes the file.
void Stage::remove_drained() noexcept {
  try {
    if (!steps_.empty()) folder_->flush();
    for (const StagedStep &step : steps_)
      if (step.drained) remove_step(*folder_, step.list.step, spec_.writer);
  } catch (...) {
    last_read_.reset();
  }
}

void Stage::begin(std::uint64_t step, std::uint64_t bytes, std::size_t runs) {
  assert(!file_);
  const std::uint64_t file_bytes = room_of_step(bytes, runs);
  const std::string data = name(step, StageFile::data);
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  assert(steps_.empty() || step > steps_.back().list.step);
  while (spec_.room_bytes > 0 && used_bytes_ + file_bytes > spec_.room_bytes) evict(lock, file_bytes);
  for (;;) {
    try {
      folder_->create(data, file_bytes);
      break;
    } catch (const StorageError &full) {  // other programs may have filled the file system
      if (full.error != ENOSPC || steps_.empty()) throw;
    }
    evict(lock, file_bytes);
  }
  file_ = folder_->open(data, true, true);
  begun_ = {{spec_.target, step, spec_.writer, {}, spec_.identity}, file_bytes, false};
  used_bytes_ += file_bytes;
}

void Stage::append(std::uint64_t target, std::span<const std::byte> bytes) {
  assert(file_);
  std::vector<StagedRun> &runs = begun_.list.runs;
  const std::uint64_t end = runs.empty() ? 0 : runs.back().data + runs.back().length;
  // A run that is shorter than a page always uses the page cache, so the run needs no alignment in the file.
  const bool short_run = bytes.size() < AlignedMemory::page_bytes;
  const std::uint64_t page_end = round_up(end, AlignedMemory::page_bytes);
  const std::uint64_t at = short_run ? end : page_end + target % AlignedMemory::page_bytes;
  assert(at + bytes.size() <= begun_.file_bytes);
  file_->write(at, bytes.data(), bytes.size());
  runs.push_back({target, bytes.size(), at, crc32c(bytes)});
}

void Stage::seal() {
  assert(file_);
  file_->flush();
  std::ranges::sort(begun_.list.runs, {}, &StagedRun::target);
  write_durably(*folder_, name(begun_.list.step, StageFile::list), to_text(begun_.list));
  file_.reset();
  {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(begun_));
  }
  changed_.notify_all();
}

// If the current step cannot be removed durably, the stage fails and drains no newer steps. The reason is that the list
// of this step could reappear after a power cut. Recovery would then drain the step, and overwrite bytes of newer steps
// in the target.
void Stage::drop() {
  if (!file_) return;
  file_.reset();
  std::exception_ptr failure;
  try {
    drop_step(*folder_, begun_.list.step, spec_.writer);
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  used_bytes_ -= begun_.file_bytes;
  if (failure && !failure_) failure_ = failure;
}

bool Stage::read(std::uint64_t target, std::span<std::byte> bytes) {
  const std::uint64_t end = target + bytes.size();
  std::unique_lock lock(mutex_);  // while this lock is held, no step is evicted
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const std::span<const StagedRun> runs = runs_in(step->list.runs, target, end);
    const std::uint64_t here = covered(runs, target, end);
    if (here == 0) continue;
    if (here < bytes.size()) return false;  // the other bytes are in an older step or in the target
    if (!last_read_ || last_read_step_ != step->list.step)
      last_read_ = folder_->open(name(step->list.step, StageFile::data), false, true);
    last_read_step_ = step->list.step;
    for (const StagedRun &run : runs) copy_from(*last_read_, run, target, bytes);
    return true;
  }
  return bytes.empty();
}

void Stage::finish() {
  std::unique_lock lock(mutex_);
  wait_for_drain(lock, [this] { return steps_.empty() || steps_.back().drained; });
  if (failure_) std::rethrow_exception(failure_);
}

void Stage::forget() {
  finish();
  std::unique_lock lock(mutex_);
  while (!steps_.empty()) evict(lock, 0);
}

// Waits until condition() returns true, or until draining has failed.
template <typename Condition>
void Stage::wait_for_drain(std::unique_lock<std::mutex> &lock, Condition &&condition) {
  if (spec_.has_thread)
    changed_.wait(lock, [&] { return failure_ || condition(); });
  else
    while (!condition() && drain_next(lock)) continue;
}

// Drains steps until the stage is closed or draining fails. The draining thread runs this function.
void Stage::drain() {
  std::unique_lock lock(mutex_);
  while (!failure_) {
    if (drain_next(lock)) continue;
    if (ending_) return;
    changed_.wait(lock);
  }
}

bool Stage::drain_next() {
  std::unique_lock lock(mutex_);
  return drain_next(lock);
}

// Drains the oldest step that is not drained yet. If the step cannot be drained, the step and all later steps stay in
// the stage. The reason is that later steps may have newer bytes for the same places of the target.
bool Stage::drain_next(std::unique_lock<std::mutex> &lock) {
  const auto found = std::ranges::find(steps_, false, &StagedStep::drained);
  if (failure_ || found == steps_.end()) return false;
  StagedStep &next = *found;  // this step stays in the stage, because only drained steps are evicted
  lock.unlock();
  std::exception_ptr failure;
  try {
    drain_step(spec_.files, *folder_, next.list, spec_.target);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure)
    failure_ = failure;
  else
    next.drained = true;
  changed_.notify_all();
  return !failure;
}

// Makes room in the stage. Waits until the oldest step is drained, and then removes this step. Throws an error if the
// stage has no steps, because `bytes` bytes then do not fit even into the empty stage.
void Stage::evict(std::unique_lock<std::mutex> &lock, std::uint64_t bytes) {
  if (steps_.empty()) throw StorageError("stage", spec_.folder, 0, bytes, ENOSPC);
  wait_for_drain(lock, [this] { return steps_.front().drained; });
  if (failure_) std::rethrow_exception(failure_);
  folder_->flush();  // the renaming of the list to `done` must be durable before the data are removed
  remove_step(*folder_, steps_.front().list.step, spec_.writer);
  last_read_.reset();  // the file system frees the room of a removed file only when the file is closed
  used_bytes_ -= steps_.front().file_bytes;
  steps_.pop_front();
}

std::string Stage::name(std::uint64_t step, StageFile kind) const { return StageName{step, spec_.writer, kind}.text(); }

// --- the sink ------------------------------------------------------------------------------------------------------

namespace {

std::string name_of(std::uint64_t step, std::uint32_t writer) {
  return "step " + std::to_string(step) + " of aggregator " + std::to_string(writer);
}

}  // namespace

StagedFile::StagedFile(StageSpec spec, const RunTotals &step, CacheMode mode, bool ample_room)
    : step_(step), file_(spec.target, false, mode, false, {.ample_room = ample_room}, {}), stage_(std::move(spec)) {}

void StagedFile::begin_step(std::uint64_t step, [[maybe_unused]] std::uint64_t base) {
  stage_.begin(step, step_.bytes, step_.long_runs);
}

void StagedFile::write(std::uint64_t offset, const std::byte *data, std::size_t length) {
  stage_.append(offset, {data, length});
}

void StagedFile::read(std::uint64_t offset, std::byte *data, std::size_t length) {
  if (stage_.read(offset, {data, length})) return;
  stage_.finish();
  file_.read(offset, data, length);
}

std::string stage_of_file(const std::string &stage_folder, const std::string &file) {
  const std::string whole = std::filesystem::weakly_canonical(std::filesystem::absolute(file)).string();
  std::array<char, 8> digits{};
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), crc32c(std::as_bytes(std::span(whole))), 16);
  return stage_folder + "/" + std::filesystem::path(whole).filename().string() + "-" + std::string(digits.begin(), end);
}

std::vector<std::string> settle_stage(const std::string &folder, const std::string &file, bool discard, double seconds,
                                      const std::string &identity) {
  std::vector<std::string> notes;
  const Recovery found =
      discard ? discard_stage(folder, seconds) : recover_stage(folder, file, seconds, Files::system(), identity);
  if (!found.busy.empty())
    throw InputError(folder + " is in use by another process as aggregator " + std::to_string(found.busy.front()) +
                     "; wait for it or stop it");
  if (!found.failed.empty())
    throw InputError("a step that an earlier run has staged in " + folder +
                     " cannot be drained: " + found.failed.front());
  for (const StageList &list : found.drained)
    notes.push_back(name_of(list.step, list.writer) + " was staged in " + folder +
                    " by an earlier run; it is now in the file");
  for (const StageName &name : found.lost)
    notes.push_back(name_of(name.step, name.writer) +
                    (discard ? " was staged in " + folder + " by an earlier run; it was dropped because the file is new"
                             : " is lost: its writer ended before the step was staged completely in " + folder));
  return notes;
}

void check_room(std::uint64_t room_bytes, const RunTotals &step) {
  // "run ", three numbers of at most 19 digits, a checksum of 10 digits, three blanks and a newline. The numbers are at
  // most 2^62. The other lines contain the path of the target and two numbers.
  constexpr std::size_t longest_run = 4 + 3 * 19 + 10 + 4, other_lines = std::size_t{1} << 16;
  constexpr std::size_t max_runs = (max_text_bytes - other_lines) / longest_run;
  if (step.runs > max_runs)
    throw InputError("a step has " + std::to_string(step.runs) +
                     " contiguous runs of bytes at this aggregator, but a stage can list at most " +
                     std::to_string(max_runs) + "; declare longer contiguous extents, or write without a stage");
  const std::uint64_t needed = room_of_step(step.bytes, step.long_runs);
  if (room_bytes == 0 || needed <= room_bytes) return;
  throw InputError("a step needs " + std::to_string(needed) +
                   " bytes of the stage at this aggregator, but its share of stage_bytes is " +
                   std::to_string(room_bytes) + "; increase stage_bytes, which the aggregators of the node share");
}

}  // namespace outcrop::aggregate
