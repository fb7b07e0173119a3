#include "outcrop/aggregate/stage.hpp"

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

#include "outcrop/aggregate/drain.hpp"
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

// The list beside, durable, then renamed, then the folder: whoever looks sees all of it or nothing, after a power cut too.
void write_list(const std::string &folder, const std::string &path, const std::string &text) {
  const std::string beside = path + unfinished;
  outcrop::File::create(beside, text.size());
  const outcrop::File file = outcrop::File::open(beside, true, false);
  file.write(0, std::as_bytes(std::span(text)).data(), text.size());
  file.flush();
  if (std::rename(beside.c_str(), path.c_str()) != 0) throw StorageError("rename", beside, 0, 0, errno);
  flush_folder(folder);
}

// How many of the bytes from `begin` to `end` of the target are in these runs, which do not overlap.
std::uint64_t covered(const std::vector<StagedRun> &runs, std::uint64_t begin, std::uint64_t end) {
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
  const AlignedMemory memory(run.length + AlignedMemory::page_bytes);
  const std::span<const std::byte> whole = read_run(data, run, memory);
  std::memcpy(bytes.data() + (first - begin), whole.data() + (first - run.target), last - first);
}

}  // namespace

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
  if (file_) ::unlink(path(begun_.list.step, StageFile::data).c_str());
  for (const Step &step : steps_)
    if (step.is_drained) remove_step(spec_.folder, step.list.step, spec_.writer);
}

void Stage::begin(std::uint64_t step, std::uint64_t bytes, std::size_t runs) {
  assert(!file_);
  const std::uint64_t file_bytes = bytes + runs * 2 * AlignedMemory::page_bytes;
  const std::string data = path(step, StageFile::data);
  std::unique_lock lock(mutex_);
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
  const std::uint64_t at = round_up(end, AlignedMemory::page_bytes) + target % AlignedMemory::page_bytes;
  assert(at + bytes.size() <= begun_.file_bytes);
  file_->write(at, bytes.data(), bytes.size());
  runs.push_back({target, bytes.size(), at, crc32c(bytes)});
}

void Stage::seal() {
  assert(file_);
  file_->flush();
  write_list(spec_.folder, path(begun_.list.step, StageFile::list), to_text(begun_.list));
  file_.reset();
  {
    const std::lock_guard lock(mutex_);
    for (const StagedRun &run : begun_.list.runs) sealed_bytes_ += run.length;
    steps_.push_back(std::move(begun_));
  }
  changed_.notify_all();
}

bool Stage::read(std::uint64_t target, std::span<std::byte> bytes) {
  std::unique_lock lock(mutex_);  // so that no step goes meanwhile
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const std::uint64_t here = covered(step->list.runs, target, target + bytes.size());
    if (here == 0) continue;
    if (here < bytes.size()) return false;  // newer bytes here, others elsewhere
    const outcrop::File data = outcrop::File::open(path(step->list.step, StageFile::data), false, true);
    for (const StagedRun &run : step->list.runs) copy_from(data, run, target, bytes);
    return true;
  }
  return bytes.empty();
}

void Stage::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failure_ || steps_.empty() || steps_.back().is_drained; });
  if (failure_) std::rethrow_exception(failure_);
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
  used_bytes_ -= steps_.front().file_bytes;
  steps_.pop_front();
}

std::string Stage::path(std::uint64_t step, StageFile kind) const {
  return spec_.folder + "/" + StageName{step, spec_.writer, kind}.text();
}

}  // namespace outcrop::aggregate
