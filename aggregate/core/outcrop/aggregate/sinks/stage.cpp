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
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {

// --- a writer's stage ----------------------------------------------------------------------------------------------

namespace {

// The runs of a sealed step, which are sorted and do not overlap, with any of the bytes from `begin` to `end`.
std::span<const StagedRun> runs_in(const std::vector<StagedRun> &runs, std::uint64_t begin, std::uint64_t end) {
  const auto first =
      std::ranges::upper_bound(runs, begin, {}, [](const StagedRun &run) { return run.target + run.length; });
  const auto last = std::ranges::lower_bound(runs, end, {}, &StagedRun::target);
  return first < last ? std::span(first, last) : std::span<const StagedRun>();
}

// How many of the bytes from `begin` to `end` of the target are in these runs.
std::uint64_t covered(std::span<const StagedRun> runs, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t bytes = 0;
  for (const StagedRun &run : runs) {
    const std::uint64_t first = std::max(begin, run.target), last = std::min(end, run.target + run.length);
    if (first < last) bytes += last - first;
  }
  return bytes;
}

// Runs are read whole, because a checksum is about a whole run.
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
  if (spec_.target.find('\n') != std::string::npos)
    throw InputError("a file that is staged for has a newline in its name");
  spec_.files.open(spec_.target, true, false);  // it is there, and may be written
  folder_ = spec_.files.own_folder(spec_.folder, true);
  held_ = hold_stage(*folder_, spec_.writer);
  for (const std::string &each : folder_->names())
    if (const auto found = StageName::of(each); found && found->writer == spec_.writer)
      throw InputError(spec_.folder + " holds " + each + " of an earlier run; recover it first");
  if (spec_.drains_beside) drainer_ = std::thread([this] { drain(); });
}

Stage::~Stage() {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    if (!spec_.drains_beside)
      while (drain_next(lock)) continue;
  }
  changed_.notify_all();
  if (drainer_.joinable()) drainer_.join();
  drop();
  remove_drained();
}

// That steps are done must be durable before their data are removed. The next recovery removes what cannot be removed now.
void Stage::remove_drained() noexcept {
  try {
    if (!steps_.empty()) folder_->flush();
    for (const StagedStep &step : steps_)
      if (step.drained) remove_step(*folder_, step.list.step, spec_.writer);
  } catch (...) {
    read_last_.reset();
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
    } catch (const StorageError &full) {  // others use the same file system
      if (full.error != ENOSPC || steps_.empty()) throw;
    }
    evict(lock, file_bytes);
  }
  file_ = folder_->open(data, true, true);
  begun_ = {{spec_.target, step, spec_.writer, {}}, file_bytes, false};
  used_bytes_ += file_bytes;
}

void Stage::append(std::uint64_t target, std::span<const std::byte> bytes) {
  assert(file_);
  std::vector<StagedRun> &runs = begun_.list.runs;
  const std::uint64_t end = runs.empty() ? 0 : runs.back().data + runs.back().length;
  // Only longer runs are aligned: a short run holds no whole page, so it goes through the page cache wherever it lies.
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
    for (const StagedRun &run : begun_.list.runs) sealed_bytes_ += run.length;
    steps_.push_back(std::move(begun_));
  }
  changed_.notify_all();
}

// A list that cannot be removed durably may come back after a power cut. Then no newer step may be in the target, so the
// stage fails.
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
  std::unique_lock lock(mutex_);  // so that no step is evicted meanwhile
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const std::span<const StagedRun> runs = runs_in(step->list.runs, target, end);
    const std::uint64_t here = covered(runs, target, end);
    if (here == 0) continue;
    if (here < bytes.size()) return false;  // newer bytes here, others elsewhere
    if (!read_last_ || read_last_step_ != step->list.step)
      read_last_ = folder_->open(name(step->list.step, StageFile::data), false, true);
    read_last_step_ = step->list.step;
    for (const StagedRun &run : runs) copy_from(*read_last_, run, target, bytes);
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

std::uint64_t Stage::sealed_bytes() const {
  const std::lock_guard lock(mutex_);
  return sealed_bytes_;
}

std::uint64_t Stage::drained_bytes() const {
  const std::lock_guard lock(mutex_);
  return drained_bytes_;
}

// Until the condition holds, or draining has failed.
template <typename Condition>
void Stage::wait_for_drain(std::unique_lock<std::mutex> &lock, Condition &&condition) {
  if (spec_.drains_beside)
    changed_.wait(lock, [&] { return failure_ || condition(); });
  else
    while (!condition() && drain_next(lock)) continue;
}

// The body of the draining thread.
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

// A step that fails stays, and so do those after it, because they may hold newer bytes of its places.
bool Stage::drain_next(std::unique_lock<std::mutex> &lock) {
  const auto next = std::ranges::find(steps_, false, &StagedStep::drained);
  if (failure_ || next == steps_.end()) return false;
  const StageList list = next->list;
  lock.unlock();
  std::exception_ptr failure;
  try {
    drain_step(spec_.files, *folder_, list, spec_.target);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (failure) {
    failure_ = failure;
  } else {
    std::ranges::find(steps_, list.step, [](const StagedStep &step) { return step.list.step; })->drained = true;
    for (const StagedRun &run : list.runs) drained_bytes_ += run.length;
  }
  changed_.notify_all();
  return !failure;
}

// Removes the oldest step once it is drained, to make room for `bytes`.
void Stage::evict(std::unique_lock<std::mutex> &lock, std::uint64_t bytes) {
  if (steps_.empty()) throw StorageError("stage", spec_.folder, 0, bytes, ENOSPC);
  wait_for_drain(lock, [this] { return steps_.front().drained; });
  if (failure_) std::rethrow_exception(failure_);
  folder_->flush();  // that it is done must be durable before its data are removed
  remove_step(*folder_, steps_.front().list.step, spec_.writer);
  read_last_.reset();  // if it is of this step, the open file would keep its room
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

std::vector<std::string> settle_stage(const std::string &folder, const std::string &file, bool discard,
                                      double seconds) {
  std::vector<std::string> notes;
  const Recovery found = discard ? discard_stage(folder, seconds) : recover_stage(folder, file, seconds);
  if (!found.busy.empty())
    throw InputError(folder + " is in use by another process as aggregator " + std::to_string(found.busy.front()) +
                     "; wait for it or stop it");
  if (!found.failed.empty())
    throw InputError("what an earlier run has staged in " + folder + " cannot be drained: " + found.failed.front());
  for (const StageList &list : found.drained)
    notes.push_back(name_of(list.step, list.writer) + " was staged in " + folder +
                    " by an earlier run; it is in the file now");
  for (const StageName &name : found.lost)
    notes.push_back(name_of(name.step, name.writer) +
                    (discard
                         ? " was staged in " + folder + " by an earlier run; it was dropped, as the file is made anew"
                         : " is lost: its writer ended before all of it was staged in " + folder));
  return notes;
}

void check_room(std::uint64_t room_bytes, const RunTotals &step) {
  const std::uint64_t needed = room_of_step(step.bytes, step.long_runs);
  if (room_bytes == 0 || needed <= room_bytes) return;
  throw InputError("a step takes " + std::to_string(needed) +
                   " bytes of the stage at this aggregator, which may have " + std::to_string(room_bytes) +
                   "; give stage_bytes, which the node's aggregators share, more");
}

}  // namespace outcrop::aggregate
