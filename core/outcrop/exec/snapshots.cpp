#include "outcrop/exec/snapshots.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {
namespace {

constexpr std::uint64_t page_bytes = AlignedMemory::page_bytes;

// Advice to the system; the flush reports errors of the data.
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

ByteRange bytes_of(const Snapshot &box, std::size_t item_bytes) {
  const auto cells = static_cast<std::uint64_t>((box.z1 - box.z0) * (box.y1 - box.y0) * (box.x1 - box.x0));
  return {box.offset, box.offset + cells * item_bytes};
}

}  // namespace

StagingBuffer::StagingBuffer(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes)
    : sizes_(sizes),
      max_open_(sizes.slots - std::max<std::size_t>(1, sizes.slots / 4)),
      store_(store),
      memory_(sizes.slots * sizes.slot_bytes),
      pump_(store) {
  assert(sizes.slots > 1 && sizes.slot_bytes > 0 && sizes.slot_bytes % page_bytes == 0);
  assert(ranges.size() == store.files().size());
  for (const ByteRange &range : ranges) ranges_.emplace_back().range = range;
  for (std::size_t i = 0; i < sizes.slots; ++i)
    free_.push_back(&slots_.emplace_back(StagingSlot{memory_.data() + i * sizes.slot_bytes}));
}

std::byte *StagingBuffer::take(std::uint32_t file, ByteRange bytes) {
  const Key key{file, bytes.begin / sizes_.slot_bytes};
  assert(bytes.begin < bytes.end && (bytes.end - 1) / sizes_.slot_bytes == key.second);
  std::unique_lock lock(mutex_);
  auto found = open_.find(key);
  while (found == open_.end() && (open_.size() >= max_open_ || free_.empty())) {
    make_room(lock);
    found = open_.find(key);
  }
  StagingSlot &slot = found == open_.end() ? open(key) : *found->second;
  ++slot.writers;
  slot.touched = ++clock_;
  return slot.data + bytes.begin % sizes_.slot_bytes;
}

// The rest of a slot that was sent early is never complete. It is sent when it is the longest untouched, or at the end.
StagingBuffer::StagingSlot &StagingBuffer::open(Key key) {
  const ByteRange &range = ranges_[key.first].range;
  const std::uint64_t begin = key.second * sizes_.slot_bytes;
  StagingSlot &slot = *free_.back();
  free_.pop_back();
  slot.key = key;
  slot.missing = std::min(begin + sizes_.slot_bytes, range.end) - std::max(begin, range.begin);
  open_.emplace(key, &slot);
  return slot;
}

// Sends an open slot, or frees one that was sent, or waits for other threads to do so. A thread that fills a slot waits for nothing
// before put(), so no thread waits forever.
void StagingBuffer::make_room(std::unique_lock<std::mutex> &lock) {
  if (open_.size() >= max_open_) {
    if (StagingSlot *slot = longest_untouched()) return send(*slot, lock);
  } else if (!sent_.empty()) {
    StagingSlot &oldest = *sent_.front();
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

StagingBuffer::StagingSlot *StagingBuffer::longest_untouched() {
  StagingSlot *result = nullptr;
  for (const auto &[key, slot] : open_)
    if (slot->writers == 0 && (result == nullptr || slot->touched < result->touched)) result = slot;
  return result;
}

void StagingBuffer::put(std::uint32_t file, ByteRange bytes) {
  ranges_[file].came.fetch_add(bytes.end - bytes.begin, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  StagingSlot &slot = *open_.at({file, bytes.begin / sizes_.slot_bytes});
  insert(slot.came, bytes);
  slot.missing -= bytes.end - bytes.begin;
  --slot.writers;
  if (slot.missing == 0)
    send(slot, lock);
  else
    changed_.notify_all();
}

void StagingBuffer::send(StagingSlot &slot, std::unique_lock<std::mutex> &lock) {
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

void StagingBuffer::write(StagingSlot &slot) {
  const std::uint32_t file = slot.key.first;
  const std::uint64_t base = slot.key.second * sizes_.slot_bytes;
  const bool direct = store_.files()[file].direct();
  StagedRange &target = ranges_[file];
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

void StagingBuffer::write_to_cache(std::uint32_t number, ByteRange bytes, const std::byte *data) {
  const File &file = store_.files()[number];
  for (std::uint64_t at = bytes.begin; at < bytes.end;) {
    const ssize_t count =
        pwrite(file.buffered_descriptor(), data + (at - bytes.begin), bytes.end - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw StorageError("write", file.path(), at, bytes.end - at, count < 0 ? errno : 0);
    at += static_cast<std::uint64_t>(count);
    ranges_[number].cached = true;
  }
}

void StagingBuffer::free(StagingSlot &slot) {
  slot.came.clear();
  slot.tickets.clear();
  free_.push_back(&slot);
  changed_.notify_all();
}

void StagingBuffer::write_behind() {
  for (std::size_t i = 0; i < ranges_.size(); ++i)
    if (ranges_[i].cached.exchange(false)) begin_write_back(store_.files()[i].buffered_descriptor());
}

void StagingBuffer::flush() {
  std::unique_lock lock(mutex_);
  while (!open_.empty()) send(*open_.begin()->second, lock);
  lock.unlock();
  pump_.drain();
  assert(std::ranges::all_of(
      ranges_, [](const StagedRange &one) { return one.came.load() == one.range.end - one.range.begin; }));
}

Snapshots::Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
                     const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes)
    : grid_(grid), window_(window), fields_(fields), bytes_(bytes) {
  if (snapshots.empty()) return;
  std::vector<FileSpec> files;
  std::vector<ByteRange> ranges;
  for (const Snapshot &one : snapshots) {
    files.push_back(
        {.path = one.path, .writable = true, .direct = one.direct, .folder = one.folder, .label = one.label});
    ranges.push_back(bytes_of(one, grid.item_bytes));
  }
  store_ = open_store(backend, files);
  for (std::uint32_t file = 0; file < snapshots.size(); ++file) {
    const Output &output = outputs_.emplace_back(Output{std::move(snapshots[file]), file});
    by_step_.emplace(output.snapshot.done, &output);
  }
  staging_.emplace(*store_, ranges, sizes);
}

// Writes the rows of the rim beside the part with it. By themselves, long before the others, they would open slots for all planes
// that are read ahead.
void Snapshots::write(long done, long position, const Rectangle &cells) {
  Rectangle part = cells;
  if (part.y0 == grid_.first_row()) part.y0 = 0;
  if (part.y1 == grid_.end_row()) part.y1 = grid_.ny;
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one)
    write(*one->second, fields_.ring(FieldValue{one->second->snapshot.field, 0}, done), position, part);
}

void Snapshots::write_rim(long position, const Rectangle &cells) {
  const bool updated = position >= grid_.first_plane() && position < grid_.end_plane();
  if (updated && grid_.first_row() < grid_.end_row()) return;
  for (const Output &output : outputs_)
    write(output, fields_.ring(FieldValue{output.snapshot.field, 0}, 0), position, cells);
}

// If the box is as wide as the part, successive rows follow each other in the file, too.
void Snapshots::write(const Output &output, std::size_t ring, long position, const Rectangle &cells) {
  const Snapshot &box = output.snapshot;
  const long z = grid_.plane(position);
  if (z < box.z0 || z >= box.z1 || failed_.load(std::memory_order_relaxed)) return;
  const Rectangle part = intersection(cells, Rectangle{box.y0, box.y1, box.x0, box.x1});
  if (part.empty()) return;
  const long rows = part.columns() == box.x1 - box.x0 ? part.rows() : 1;
  try {
    for (long y = part.y0; y < part.y1; y += rows)
      write_rows(output, ring, position, Rectangle{y, y + rows, part.x0, part.x1});
  } catch (const StorageError &error) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_.emplace(error);
    failed_ = true;
  }
}

// Writes rows that follow each other in the file, slot by slot.
void Snapshots::write_rows(const Output &output, std::size_t ring, long position, const Rectangle &rows) {
  const Snapshot &box = output.snapshot;
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(rows.columns()) * grid_.item_bytes;
  const long plane = grid_.plane(position) - box.z0;
  const long cell =
      (plane * (box.y1 - box.y0) + rows.y0 - box.y0) * (box.x1 - box.x0) + rows.x0 - box.x0;  // in the box
  const std::uint64_t first = box.offset + static_cast<std::uint64_t>(cell) * grid_.item_bytes;
  const std::uint64_t last = first + static_cast<std::uint64_t>(rows.rows()) * row_bytes;
  const std::size_t slot_bytes = staging_->slot_bytes();
  for (std::uint64_t begin = first; begin < last;) {
    const std::uint64_t end = std::min(last, round_down(begin, slot_bytes) + slot_bytes);
    std::byte *to = staging_->take(output.file, {begin, end});
    for (std::uint64_t at = begin - first; at < end - first;) {
      const std::uint64_t in_row = at % row_bytes, length = std::min(row_bytes - in_row, end - first - at);
      const long y = rows.y0 + static_cast<long>(at / row_bytes);
      std::memcpy(to, window_.cell(ring, position, y, rows.x0) + in_row, length);
      to += length;
      at += length;
    }
    staging_->put(output.file, {begin, end});
    bytes_.fetch_add(end - begin, std::memory_order_relaxed);
    begin = end;
  }
}

std::vector<std::uint32_t> Snapshots::sums() const {
  std::vector<std::uint32_t> result;
  for (const Output &output : outputs_) result.push_back(staging_->sum(output.file));
  return result;
}

void Snapshots::check() const {
  if (failed_) throw StorageError(*error_);
}

void Snapshots::write_behind() {
  check();
  if (!empty()) staging_->write_behind();
}

void Snapshots::flush() {
  if (empty()) return;
  check();
  staging_->flush();
  store_->flush();
  for (const File &file : store_->files())
    static_cast<void>(posix_fadvise(file.buffered_descriptor(), 0, 0, POSIX_FADV_DONTNEED));
}

}  // namespace outcrop
