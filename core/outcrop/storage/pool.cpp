#include "outcrop/storage/pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <system_error>

namespace outcrop {
namespace {

// Enough to keep a device busy with pieces of megabytes; they sleep in the kernel nearly all the time.
constexpr std::size_t threads_most = 8;

}  // namespace

PoolStore::PoolStore(std::vector<File> files, std::size_t depth)
    : Store(std::move(files)), todo_(std::max<std::size_t>(depth, 1)), ready_(todo_.size()) {
  threads_.reserve(std::min(threads_most, todo_.size()));
}

PoolStore::~PoolStore() { assert(threads_.empty()); }

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

// On first use, when the derived class is there, and no more than there is work for.
void PoolStore::start_threads() {
  try {
    while (threads_.size() < threads_.capacity() && threads_.size() < in_flight_)
      threads_.emplace_back([this] { work(); });
  } catch (const std::system_error &) {  // the system has no more; with one we go on, with none the caller tries again
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

std::int64_t PoolStore::move_by_call(const Transfer &transfer) const {
  const Place found = place(transfer);
  const int file = found.descriptor;
  const auto offset = static_cast<off_t>(found.offset);
  const ssize_t moved = transfer.write ? pwrite(file, transfer.data, transfer.length, offset)
                                       : pread(file, transfer.data, transfer.length, offset);
  return moved < 0 ? -errno : moved;
}

}  // namespace outcrop
