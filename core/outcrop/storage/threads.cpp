// These backends make blocking calls from a pool of threads:
//
//     submit ──► todo ──► threads: move() ──► ready ──► reap
//
//     threads   pread and pwrite; works on every file system
//     memory    pread and pwrite on files in memory, for tests and for runs without a disk. A new file in memory
//               contains only zeros. The new file has the size of the file that it replaces. If there is no such file,
//               the new file is empty. Writes extend the file. The file is deleted together with the store
//     mmap      copies from and to mapped files, always through the page cache. A device error in a mapping raises
//               SIGBUS. So this backend is only for comparison, and for file systems on which no other backend works
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/mapping.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {
namespace {

// The maximum number of threads. Eight threads keep a device busy if transfers have several megabytes. The threads
// sleep in system calls nearly all the time.
constexpr std::size_t max_threads = 8;

class PoolStore : public Store {
 public:
  PoolStore(std::vector<File> files, std::size_t depth, const char *name);
  ~PoolStore() override { stop(); }

  const char *name() const override { return name_; }
  std::size_t depth() const override { return ready_.size(); }
  void submit(std::span<const Transfer> transfers) override;
  std::size_t reap(std::span<Completion> completions, bool wait) override;

 protected:
  // Calls pread or pwrite for one transfer. A thread of the pool calls this function. Returns the number of bytes
  // transferred, or -errno.
  virtual std::int64_t move(const Transfer &transfer);

  // Finishes the submitted transfers and ends the threads. A derived class that overrides move() must call this
  // function in its destructor, because the threads can call move() until they have ended.
  void stop();

 private:
  void start_threads();
  void work();

  const char *const name_;
  std::mutex mutex_;
  std::condition_variable todo_changed_, ready_changed_;
  BoundedQueue<Transfer> todo_;
  BoundedQueue<Completion> ready_;
  std::size_t in_flight_ = 0;  // number of transfers that were submitted and not reaped
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

PoolStore::PoolStore(std::vector<File> files, std::size_t depth, const char *name)
    : Store(std::move(files)), name_(name), todo_(std::max<std::size_t>(depth, 1)), ready_(todo_.size()) {
  threads_.reserve(std::min(max_threads, todo_.size()));
}

void PoolStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  todo_changed_.notify_all();
  for (std::thread &thread : threads_) thread.join();
  threads_.clear();
}

void PoolStore::submit(std::span<const Transfer> transfers) {
  {
    const std::lock_guard lock(mutex_);
    assert(in_flight_ + transfers.size() <= depth());
    in_flight_ += transfers.size();
    for (const Transfer &transfer : transfers) todo_.push(transfer);
    start_threads();
  }
  todo_changed_.notify_all();
}

// Threads start when the first transfer is submitted. The threads cannot start in the constructor, because the object
// of the derived class does not exist yet. The number of threads is at most the number of transfers in flight.
void PoolStore::start_threads() {
  try {
    while (threads_.size() < threads_.capacity() && threads_.size() < in_flight_)
      threads_.emplace_back([this] { work(); });
  } catch (const std::system_error &) {  // one thread can do all transfers; without a thread, transfers return EAGAIN
    while (threads_.empty() && todo_.count() > 0) ready_.push(Completion{todo_.pop().tag, -EAGAIN});
  }
}

std::size_t PoolStore::reap(std::span<Completion> completions, bool wait) {
  std::unique_lock lock(mutex_);
  if (wait && in_flight_ > 0) ready_changed_.wait(lock, [this] { return ready_.count() > 0; });
  const std::size_t count = std::min(completions.size(), ready_.count());
  for (std::size_t i = 0; i < count; ++i) completions[i] = ready_.pop();
  in_flight_ -= count;
  return count;
}

void PoolStore::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    todo_changed_.wait(lock, [this] { return stopping_ || todo_.count() > 0; });
    if (todo_.count() == 0) return;
    const Transfer transfer = todo_.pop();
    lock.unlock();
    const std::int64_t result = move(transfer);
    lock.lock();
    ready_.push(Completion{transfer.tag, result});
    ready_changed_.notify_one();
  }
}

std::int64_t PoolStore::move(const Transfer &transfer) {
  const auto [file, begin] = locate(transfer);
  const auto offset = static_cast<off_t>(begin);
  const auto parts = static_cast<int>(transfer.parts.size());
  ssize_t moved = 0;
  if (parts > 0)
    moved = transfer.write ? pwritev(file, transfer.parts.data(), parts, offset)
                           : preadv(file, transfer.parts.data(), parts, offset);
  else
    moved = transfer.write ? pwrite(file, transfer.data, transfer.length, offset)
                           : pread(file, transfer.data, transfer.length, offset);
  return moved < 0 ? -errno : moved;
}

class MmapStore final : public PoolStore {
 public:
  MmapStore(std::vector<File> files, std::size_t depth) : PoolStore(std::move(files), depth, "mmap") {
    for (const File &file : this->files()) mappings_.emplace_back(file);
  }
  ~MmapStore() override { stop(); }

  void flush() override {
    for (std::size_t i = 0; i < mappings_.size(); ++i) {
      const File &file = files()[i];
      if (!file.writable() || file.scratch()) continue;
      mappings_[i].flush(0, mappings_[i].size());
      file.flush();
    }
  }

  void close() override {
    mappings_.clear();
    Store::close();
  }

 protected:
  std::int64_t move(const Transfer &transfer) override {
    if (locate(transfer).descriptor < 0) return -EBADF;
    const Mapping &mapping = mappings_[transfer.file];
    if (transfer.offset >= mapping.size()) return transfer.write ? -ENOSPC : 0;
    const std::size_t length = std::min<std::uint64_t>(transfer.length, mapping.size() - transfer.offset);
    std::byte *const place = mapping.data() + transfer.offset;
    copy(transfer, place, length);
    forget(place, length);
    return static_cast<std::int64_t>(length);
  }

 private:
  // Unmaps the pages of a finished transfer, because the system counts mapped pages as memory of this process. The
  // content of the pages stays in the page cache.
  static void forget(std::byte *place, std::size_t length) {
    const std::size_t into_page = reinterpret_cast<std::uintptr_t>(place) % AlignedMemory::page_bytes;
    madvise(place - into_page, length + into_page, MADV_DONTNEED);
  }

  std::vector<Mapping> mappings_;
};

}  // namespace

std::unique_ptr<Store> make_thread_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<PoolStore>(std::move(files), depth, "threads");
}

std::unique_ptr<Store> make_memory_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<PoolStore>(std::move(files), depth, "memory");
}

std::unique_ptr<Store> make_mmap_store(std::vector<File> files, std::size_t depth) {
  return std::make_unique<MmapStore>(std::move(files), depth);
}

}  // namespace outcrop
