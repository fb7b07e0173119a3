#include "outcrop/exec/staging.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop {
namespace {

constexpr std::uint64_t page_bytes = AlignedMemory::page_bytes;

// Advice to the system; what goes wrong with the data themselves is reported by the flush.
void begin_write_back(int descriptor) {
#if defined(__linux__)
  static_cast<void>(sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE));
#endif
}

void insert(std::vector<ByteRange> &came, ByteRange more) {
  auto at = std::ranges::lower_bound(came, more.begin, {}, &ByteRange::begin);
  assert(at == came.end() || more.end <= at->begin);
  assert(at == came.begin() || std::prev(at)->end <= more.begin);
  if (at != came.end() && at->begin == more.end)
    at->begin = more.begin;
  else
    at = came.insert(at, more);
  if (at == came.begin() || std::prev(at)->end != at->begin) return;
  std::prev(at)->end = at->end;
  came.erase(at);
}

}  // namespace

Staging::Staging(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes)
    : sizes_(sizes),
      open_most_(sizes.slots - std::max<std::size_t>(1, sizes.slots / 4)),
      store_(store),
      memory_(sizes.slots * sizes.slot_bytes),
      pump_(store) {
  assert(sizes.slots > 1 && sizes.slot_bytes > 0 && sizes.slot_bytes % page_bytes == 0);
  assert(ranges.size() == store.files().size());
  for (const ByteRange &range : ranges) targets_.emplace_back().range = range;
  for (std::size_t i = 0; i < sizes.slots; ++i)
    free_.push_back(&slots_.emplace_back(Slot{memory_.data() + i * sizes.slot_bytes}));
}

std::byte *Staging::take(std::uint32_t file, ByteRange bytes) {
  const Key key{file, bytes.begin / sizes_.slot_bytes};
  assert(bytes.begin < bytes.end && (bytes.end - 1) / sizes_.slot_bytes == key.second);
  std::unique_lock lock(mutex_);
  auto found = open_.find(key);
  while (found == open_.end() && (open_.size() >= open_most_ || free_.empty())) {
    make_room(lock);
    found = open_.find(key);
  }
  Slot &slot = found == open_.end() ? open(key) : *found->second;
  ++slot.writers;
  slot.touched = ++clock_;
  return slot.data + bytes.begin % sizes_.slot_bytes;
}

// Of one that had to go early before, the rest is never complete: it goes when it is the longest untouched, or at the end.
Staging::Slot &Staging::open(Key key) {
  const ByteRange &range = targets_[key.first].range;
  const std::uint64_t begin = key.second * sizes_.slot_bytes;
  Slot &slot = *free_.back();
  free_.pop_back();
  slot.key = key;
  slot.missing = std::min(begin + sizes_.slot_bytes, range.end) - std::max(begin, range.begin);
  open_.emplace(key, &slot);
  return slot;
}

// One slot less that is open, or one more that is free, or whatever other threads do meanwhile. Whoever fills a slot waits for
// nothing before it is there, so none waits forever.
void Staging::make_room(std::unique_lock<std::mutex> &lock) {
  if (open_.size() >= open_most_) {
    if (Slot *slot = longest_untouched()) return send(*slot, lock);
  } else if (!sent_.empty()) {
    Slot &oldest = *sent_.front();
    sent_.pop_front();
    lock.unlock();
    try {
      for (const Ticket ticket : oldest.tickets) pump_.wait(ticket);
    } catch (...) {
      lock.lock();
      free(oldest);
      throw;
    }
    lock.lock();
    return free(oldest);
  }
  changed_.wait(lock);
}

Staging::Slot *Staging::longest_untouched() {
  Slot *result = nullptr;
  for (const auto &[key, slot] : open_)
    if (slot->writers == 0 && (result == nullptr || slot->touched < result->touched)) result = slot;
  return result;
}

void Staging::put(std::uint32_t file, ByteRange bytes) {
  targets_[file].came.fetch_add(bytes.end - bytes.begin, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  Slot &slot = *open_.at({file, bytes.begin / sizes_.slot_bytes});
  insert(slot.came, bytes);
  slot.missing -= bytes.end - bytes.begin;
  --slot.writers;
  if (slot.missing == 0)
    send(slot, lock);
  else
    changed_.notify_all();
}

void Staging::send(Slot &slot, std::unique_lock<std::mutex> &lock) {
  open_.erase(slot.key);
  lock.unlock();
  try {
    write(slot);
  } catch (...) {
    lock.lock();
    free(slot);
    throw;
  }
  lock.lock();
  sent_.push_back(&slot);
  changed_.notify_all();
}

void Staging::write(Slot &slot) {
  const std::uint32_t file = slot.key.first;
  const std::uint64_t base = slot.key.second * sizes_.slot_bytes;
  const bool direct = store_.files()[file].direct();
  Target &target = targets_[file];
  for (const auto &[begin, end] : slot.came) {
    const std::uint64_t first = direct ? std::min(round_up(begin, page_bytes), end) : end;
    const std::uint64_t last = std::max(round_down(end, page_bytes), first);
    const std::uint32_t part = crc32c({slot.data + (begin - base), end - begin});
    target.sum.fetch_xor(crc32c_join(part, 0, crc32c_factor(target.range.end - end)), std::memory_order_relaxed);
    write_to_cache(file, {begin, first}, slot.data + (begin - base));
    write_to_cache(file, {last, end}, slot.data + (last - base));
    if (first < last)
      slot.tickets.push_back(pump_.submit(
          {.write = true, .file = file, .offset = first, .data = slot.data + (first - base), .length = last - first}));
  }
}

void Staging::write_to_cache(std::uint32_t number, ByteRange bytes, const std::byte *data) {
  const File &file = store_.files()[number];
  for (std::uint64_t at = bytes.begin; at < bytes.end;) {
    const ssize_t count =
        pwrite(file.buffered_descriptor(), data + (at - bytes.begin), bytes.end - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw StorageError("write", file.path(), at, bytes.end - at, count < 0 ? errno : 0);
    at += static_cast<std::uint64_t>(count);
    targets_[number].is_cached = true;
  }
}

void Staging::free(Slot &slot) {
  slot.came.clear();
  slot.tickets.clear();
  free_.push_back(&slot);
  changed_.notify_all();
}

void Staging::write_behind() {
  for (std::size_t i = 0; i < targets_.size(); ++i)
    if (targets_[i].is_cached.exchange(false)) begin_write_back(store_.files()[i].buffered_descriptor());
}

void Staging::flush() {
  std::unique_lock lock(mutex_);
  while (!open_.empty()) send(*open_.begin()->second, lock);
  lock.unlock();
  pump_.drain();
  assert(std::ranges::all_of(targets_,
                             [](const Target &one) { return one.came.load() == one.range.end - one.range.begin; }));
}

}  // namespace outcrop
