#include "outcrop/aggregate/sinks/stage.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "outcrop/aggregate/sinks/drain.hpp"
#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop::aggregate {
namespace {

void make_folder(const std::string &folder) {
  std::error_code error;
  const bool is_new = std::filesystem::create_directories(folder, error);
  if (error) throw StorageError("create", folder, 0, 0, error.value());
  if (is_new) flush_folder(std::filesystem::absolute(folder).parent_path().string());
}

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

// Runs are read whole, because only so their checksums say something.
void copy_from(const outcrop::File &data, const StagedRun &run, std::uint64_t begin, std::span<std::byte> bytes) {
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

std::uint64_t room_of_step(std::uint64_t bytes, std::size_t runs) {
  return bytes + (2 * runs + 1) * AlignedMemory::page_bytes;
}

Descriptor hold_stage(const std::string &folder, std::uint32_t writer) {
  const std::string path = folder + "/writer-" + std::to_string(writer) + ".lock";
  Descriptor held(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (held.get() < 0) throw StorageError("open", path, 0, 0, errno);
  if (flock(held.get(), LOCK_EX | LOCK_NB) != 0)
    throw InputError(folder + " is in use by another process that is writer " + std::to_string(writer) +
                     "; wait for it or stop it");
  return held;
}

Stage::Stage(StageSpec spec) : spec_(std::move(spec)) {
  if (spec_.target.find('\n') != std::string::npos)
    throw InputError("a file that is staged for has a newline in its name");
  const outcrop::File target = outcrop::File::open(spec_.target, true, false);  // it is there, and may be written
  make_folder(spec_.folder);
  held_ = hold_stage(spec_.folder, spec_.writer);
  for (const auto &entry : std::filesystem::directory_iterator(spec_.folder)) {
    const auto name = StageName::of(entry.path().filename().string());
    if (name && name->writer == spec_.writer)
      throw InputError(spec_.folder + " holds " + name->text() + " of an earlier run; recover it first");
  }
  drainer_ = std::thread([this] { drain(); });
}

Stage::~Stage() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  drainer_.join();
  drop();
  for (const Step &step : steps_)
    if (step.is_drained) remove_step(spec_.folder, step.list.step, spec_.writer);
}

void Stage::begin(std::uint64_t step, std::uint64_t bytes, std::size_t runs) {
  assert(!file_);
  const std::uint64_t file_bytes = room_of_step(bytes, runs);
  const std::string data = path(step, StageFile::data);
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  assert(steps_.empty() || step > steps_.back().list.step);
  while (spec_.room_bytes > 0 && used_bytes_ + file_bytes > spec_.room_bytes) evict(lock, file_bytes);
  for (;;) {
    try {
      outcrop::File::create(data, file_bytes);
      break;
    } catch (const StorageError &full) {  // others use the same file system
      if (full.error != ENOSPC || steps_.empty()) throw;
    }
    evict(lock, file_bytes);
  }
  file_ = outcrop::File::open(data, true, true);
  begun_ = {{spec_.target, step, spec_.writer, {}}, file_bytes, false};
  used_bytes_ += file_bytes;
}

void Stage::append(std::uint64_t target, std::span<const std::byte> bytes) {
  assert(file_);
  std::vector<StagedRun> &runs = begun_.list.runs;
  const std::uint64_t end = runs.empty() ? 0 : runs.back().data + runs.back().length;
  // Short ones hold no whole page, so that none of a page's bytes goes around the cache while others go through it.
  const bool is_short = bytes.size() < AlignedMemory::page_bytes;
  const std::uint64_t page_end = round_up(end, AlignedMemory::page_bytes);
  const std::uint64_t at = is_short ? end : page_end + target % AlignedMemory::page_bytes;
  assert(at + bytes.size() <= begun_.file_bytes);
  file_->write(at, bytes.data(), bytes.size());
  runs.push_back({target, bytes.size(), at, crc32c(bytes)});
}

void Stage::seal() {
  assert(file_);
  file_->flush();
  std::ranges::sort(begun_.list.runs, {}, &StagedRun::target);
  write_durably(path(begun_.list.step, StageFile::list), to_text(begun_.list));
  file_.reset();
  {
    const std::lock_guard lock(mutex_);
    for (const StagedRun &run : begun_.list.runs) sealed_bytes_ += run.length;
    steps_.push_back(std::move(begun_));
  }
  changed_.notify_all();
}

void Stage::drop() {
  if (!file_) return;
  file_.reset();
  drop_step(spec_.folder, begun_.list.step, spec_.writer);
  const std::lock_guard lock(mutex_);
  used_bytes_ -= begun_.file_bytes;
}

bool Stage::read(std::uint64_t target, std::span<std::byte> bytes) {
  const std::uint64_t end = target + bytes.size();
  std::unique_lock lock(mutex_);  // so that no step goes meanwhile
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const std::span<const StagedRun> runs = runs_in(step->list.runs, target, end);
    const std::uint64_t here = covered(runs, target, end);
    if (here == 0) continue;
    if (here < bytes.size()) return false;  // newer bytes here, others elsewhere
    const std::string data = path(step->list.step, StageFile::data);
    if (!read_last_ || read_last_->path() != data) read_last_ = outcrop::File::open(data, false, true);
    for (const StagedRun &run : runs) copy_from(*read_last_, run, target, bytes);
    return true;
  }
  return bytes.empty();
}

void Stage::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || steps_.empty() || steps_.back().is_drained; });
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

// The drainer's whole life. A step that fails stays, and so do those after it, which may hold newer bytes of its places.
void Stage::drain() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto next = std::ranges::find(steps_, false, &Step::is_drained);
    if (next == steps_.end()) {
      if (is_ending_) return;
      changed_.wait(lock);
      continue;
    }
    const StageList list = next->list;
    lock.unlock();
    std::exception_ptr failure;
    try {
      drain_step(spec_.folder, list);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
    } else {
      std::ranges::find(steps_, list.step, [](const Step &step) { return step.list.step; })->is_drained = true;
      for (const StagedRun &run : list.runs) drained_bytes_ += run.length;
    }
    changed_.notify_all();
    if (failure) return;
  }
}

// The oldest step goes, once it is drained. `bytes` are what room is needed for.
void Stage::evict(std::unique_lock<std::mutex> &lock, std::uint64_t bytes) {
  if (steps_.empty()) throw StorageError("stage", spec_.folder, 0, bytes, ENOSPC);
  changed_.wait(lock, [this] { return steps_.front().is_drained || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  flush_folder(spec_.folder);  // that it is done must be known before its data go
  remove_step(spec_.folder, steps_.front().list.step, spec_.writer);
  read_last_.reset();  // of this step maybe, whose room would not be given back
  used_bytes_ -= steps_.front().file_bytes;
  steps_.pop_front();
}

std::string Stage::path(std::uint64_t step, StageFile kind) const {
  return spec_.folder + "/" + StageName{step, spec_.writer, kind}.text();
}

}  // namespace outcrop::aggregate
