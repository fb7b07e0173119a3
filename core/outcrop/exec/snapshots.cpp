#include "outcrop/exec/snapshots.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "outcrop/storage/checksums.hpp"

namespace outcrop {

// --- means of groups of cells ----------------------------------------------------------------------------------------

namespace {

// Computes the sum of each group of `size` cells in a row. Adds the cells of a group from the first to the last cell.
// If `Size` is not 0, the compiler unrolls the loop over the cells of a group.
template <typename Item, long Size>
void sum_groups(const Item *cells, long count, long size, double *sums) {
  const long each = Size == 0 ? size : Size, whole = count / each;
  for (long i = 0; i < whole; ++i, cells += each) {
    auto sum = static_cast<double>(cells[0]);
    for (long k = 1; k < each; ++k) sum += static_cast<double>(cells[k]);
    sums[i] = sum;
  }
  if (const long rest = count - whole * each; rest > 0) {
    auto sum = static_cast<double>(cells[0]);
    for (long k = 1; k < rest; ++k) sum += static_cast<double>(cells[k]);
    sums[whole] = sum;
  }
}

template <typename Item>
void sum_groups(const std::byte *bytes, long count, long size, double *sums) {
  const auto *cells = reinterpret_cast<const Item *>(bytes);
  if (size == 2) return sum_groups<Item, 2>(cells, count, size, sums);
  if (size == 4) return sum_groups<Item, 4>(cells, count, size, sums);
  if (size == 8) return sum_groups<Item, 8>(cells, count, size, sums);
  sum_groups<Item, 0>(cells, count, size, sums);
}

void add_to(double *total, const double *sums, long count) {
  for (long i = 0; i < count; ++i) total[i] += sums[i];
}

// Returns how many cells the group with the number `number` has along one axis. The last group of a box can have fewer
// cells than the other groups.
long extent_of(long number, long group, long box) { return std::min(group, box - number * group); }

// The number of rows of sums for which memory is reserved. The function coarse_bytes in
// run/acquisition/pass_acquisition.py computes the same number.
std::size_t reserved_rows(const Extents &box, const Extents &group) {
  return static_cast<std::size_t>(box.y * (std::min(box.z, group.z) + 2));
}

thread_local std::vector<double> scratch;

}  // namespace

CoarseBox::CoarseBox(const Extents &box, const Extents &group, std::size_t item_bytes)
    : box_(box),
      group_(group),
      groups_(groups_of(box, group)),
      item_bytes_(item_bytes),
      memory_(reserved_rows(box, group) * static_cast<std::size_t>(groups_.x) * sizeof(double)),
      unused_(reserved_rows(box, group)) {
  assert(item_bytes == sizeof(float) || item_bytes == sizeof(double));
  free_.reserve(unused_);
}

bool CoarseBox::add(long z, long y, long x0, long x1, const std::byte *cells, CoarseRow &row) {
  const long group_z = z / group_.z, group_y = y / group_.y;
  const auto key = static_cast<std::uint64_t>(group_z * groups_.y + group_y);
  OpenRows &some = open_[key % open_.size()];
  std::unique_lock lock(some.mutex, std::defer_lock);
  std::vector<std::byte> joined;
  if (x1 - x0 < box_.x) {
    lock.lock();
    auto &[bytes, columns] = some.rows[key].parts[{z, y}];
    bytes.resize(static_cast<std::size_t>(box_.x) * item_bytes_);
    std::memcpy(bytes.data() + static_cast<std::size_t>(x0) * item_bytes_, cells,
                static_cast<std::size_t>(x1 - x0) * item_bytes_);
    columns += x1 - x0;
    if (columns < box_.x) return false;
    joined = std::move(bytes);
    some.rows[key].parts.erase({z, y});
    lock.unlock();
    cells = joined.data();
  }

  scratch.resize(static_cast<std::size_t>(groups_.x));
  sum_row(cells, scratch.data());

  lock.lock();
  OpenRow &open = some.rows[key];
  if (open.totals.empty()) open.totals.resize(static_cast<std::size_t>(extent_of(group_y, group_.y, box_.y)));
  const long planes = extent_of(group_z, group_.z, box_.z);
  Total &total = open.totals[static_cast<std::size_t>(y - group_y * group_.y)];
  add_plane(total, z - group_z * group_.z, scratch.data());
  if (total.planes < planes || ++open.complete < static_cast<long>(open.totals.size())) return false;
  OpenRow complete = std::move(open);
  some.rows.erase(key);
  lock.unlock();
  row.z = group_z;
  row.y = group_y;
  finish(complete, row);
  return true;
}

void CoarseBox::sum_row(const std::byte *cells, double *sums) const {
  if (item_bytes_ == sizeof(float)) return sum_groups<float>(cells, box_.x, group_.x, sums);
  sum_groups<double>(cells, box_.x, group_.x, sums);
}

// Adds the sums of the plane `plane` to a total. Then adds the waiting planes that directly follow this plane, up to
// the first missing plane.
void CoarseBox::add_plane(Total &total, long plane, const double *sums) {
  assert(plane >= total.planes && plane < group_.z);
  if (plane > total.planes || total.sums == nullptr) {
    double *copy = take();
    std::copy_n(sums, groups_.x, copy);
    if (plane > total.planes) return total.waiting.emplace_back(plane, copy), void();
    total.sums = copy;
  } else {
    add_to(total.sums, sums, groups_.x);
  }
  ++total.planes;
  const auto is_next = [&](const auto &one) { return one.first == total.planes; };
  for (auto next = std::ranges::find_if(total.waiting, is_next); next != total.waiting.end();
       next = std::ranges::find_if(total.waiting, is_next)) {
    add_to(total.sums, next->second, groups_.x);
    give_back(next->second);
    total.waiting.erase(next);
    ++total.planes;
  }
}

// Adds the totals of all rows, and divides each sum by the number of cells of its group.
void CoarseBox::finish(OpenRow &open, CoarseRow &row) {
  const std::vector<Total> &totals = open.totals;
  row.means.assign(totals[0].sums, totals[0].sums + groups_.x);
  for (std::size_t i = 1; i < totals.size(); ++i) add_to(row.means.data(), totals[i].sums, groups_.x);
  const long above = extent_of(row.z, group_.z, box_.z) * static_cast<long>(totals.size());
  for (long x = 0; x < groups_.x; ++x)
    row.means[static_cast<std::size_t>(x)] /= static_cast<double>(above * extent_of(x, group_.x, box_.x));
  for (const Total &one : totals) give_back(one.sums);
}

double *CoarseBox::take() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    double *sums = free_.back();
    free_.pop_back();
    return sums;
  }
  const auto row_items = static_cast<std::size_t>(groups_.x);
  if (unused_ > 0) return reinterpret_cast<double *>(memory_.data()) + --unused_ * row_items;
  constexpr std::size_t more_rows = 64;
  auto *first = reinterpret_cast<double *>(more_memory_.emplace_back(more_rows * row_items * sizeof(double)).data());
  for (std::size_t i = 1; i < more_rows; ++i) free_.push_back(first + i * row_items);
  return first;
}

void CoarseBox::give_back(double *sums) {
  const std::lock_guard lock(mutex_);
  free_.push_back(sums);
}

bool CoarseBox::has_no_open_rows() const {
  return std::ranges::all_of(open_, [](const OpenRows &some) {
    const std::lock_guard lock(some.mutex);
    return some.rows.empty();
  });
}

// --- snapshots -------------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t page_bytes = AlignedMemory::page_bytes;

// Adds the range `more` to a list of ascending ranges. The new range is merged with the ranges that touch it.
void insert(std::vector<ByteRange> &ranges, ByteRange more) {
  auto at = std::ranges::lower_bound(ranges, more.begin, {}, &ByteRange::begin);
  assert(at == ranges.end() || more.end <= at->begin);
  assert(at == ranges.begin() || std::prev(at)->end <= more.begin);
  if (at != ranges.end() && at->begin == more.end)
    at->begin = more.begin;
  else
    at = ranges.insert(at, more);
  if (at == ranges.begin() || std::prev(at)->end != at->begin) return;
  std::prev(at)->end = at->end;
  ranges.erase(at);
}

ByteRange bytes_of(const Snapshot &box, std::size_t item_bytes) {
  return {box.offset, box.offset + groups_of(box.box(), box.group).cells() * item_bytes};
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
  slot.used = ++clock_;
  return slot.data + bytes.begin % sizes_.slot_bytes;
}

// Takes a free slot of the buffer. This slot will hold the bytes of one slot of a file. If the slot of the file was
// sent early, open() can be called again for the remaining bytes of the slot. Then the new slot of the buffer cannot
// become complete, because it never gets the bytes that were already sent. Such a slot is also sent early, or flush()
// sends it at the end.
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

// Returns the open slot that should be sent early. Returns null if there is no such slot. The function does not return
// slots that a thread is filling. Each tile uses the planes of a slab in the same order as the other tiles. Therefore
// the slot with the longest time since its last use is usually a bad choice, because it is often needed next. However,
// if the other slots have been used several times since then, no tile of the slab uses this slot any more. In this
// case, the function returns this slot. Otherwise the function returns the slot with the most bytes.
StagingBuffer::StagingSlot *StagingBuffer::slot_to_send_early() const {
  constexpr std::uint64_t turns = 8;
  StagingSlot *longest_unused = nullptr, *fullest = nullptr;
  for (const auto &[key, slot] : open_) {
    if (slot->writers > 0) continue;
    if (longest_unused == nullptr || slot->used < longest_unused->used) longest_unused = slot;
    if (fullest == nullptr || slot->filled > fullest->filled) fullest = slot;
  }
  if (longest_unused != nullptr && clock_ - longest_unused->used > turns * open_.size()) return longest_unused;
  return fullest;
}

// Sends an open slot early, or frees a slot that has been sent. If the function can do neither, it waits until another
// thread changes a slot. No thread waits forever, because each thread that has called take() calls put() before it
// waits again.
void StagingBuffer::make_room(std::unique_lock<std::mutex> &lock) {
  if (open_.size() >= max_open_) {
    if (StagingSlot *early = slot_to_send_early(); early != nullptr) return send(*early, lock);
  } else if (!sent_.empty()) {
    StagingSlot &oldest = *sent_.front();
    sent_.pop_front();
    without_lock(lock, oldest, [&] {
      for (const Ticket ticket : oldest.tickets) pump_.wait(ticket);
    });
    return free(oldest);
  }
  changed_.wait(lock);
}

void StagingBuffer::put(std::uint32_t file, ByteRange bytes) {
  ranges_[file].present.fetch_add(bytes.end - bytes.begin, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  StagingSlot &slot = *open_.at({file, bytes.begin / sizes_.slot_bytes});
  insert(slot.present, bytes);
  slot.filled += bytes.end - bytes.begin;
  slot.missing -= bytes.end - bytes.begin;
  --slot.writers;
  if (slot.missing == 0)
    send(slot, lock);
  else
    changed_.notify_all();
}

void StagingBuffer::send(StagingSlot &slot, std::unique_lock<std::mutex> &lock) {
  open_.erase(slot.key);
  without_lock(lock, slot, [&] { write(slot); });
  sent_.push_back(&slot);
  changed_.notify_all();
}

// Releases the lock, calls `work`, and takes the lock again. Frees the slot if `work` fails.
template <typename Work>
void StagingBuffer::without_lock(std::unique_lock<std::mutex> &lock, StagingSlot &slot, const Work &work) {
  lock.unlock();
  try {
    work();
  } catch (...) {
    lock.lock();
    free(slot);
    throw;
  }
  lock.lock();
}

void StagingBuffer::write(StagingSlot &slot) {
  const std::uint32_t number = slot.key.first;
  const std::uint64_t base = slot.key.second * sizes_.slot_bytes;
  const File &file = store_.files()[number];
  StagedRange &target = ranges_[number];
  for (const auto &[begin, end] : slot.present) {
    const std::uint64_t first = file.direct() ? std::min(round_up(begin, page_bytes), end) : end;
    const std::uint64_t last = std::max(round_down(end, page_bytes), first);
    const std::uint32_t part = crc32c({slot.data + (begin - base), end - begin});
    target.sum.fetch_xor(crc32c_join(part, 0, crc32c_factor(target.range.end - end)), std::memory_order_relaxed);
    // The first and the last part of the bytes go through the page cache. The reason is that these parts are shorter
    // than a page, or that the file does not allow direct I/O.
    file.write(begin, slot.data + (begin - base), first - begin);
    file.write(last, slot.data + (last - base), end - last);
    if (begin < first || last < end) target.cached = true;
    if (first < last)
      slot.tickets.push_back(pump_.submit({.write = true,
                                           .file = number,
                                           .offset = first,
                                           .data = slot.data + (first - base),
                                           .length = last - first}));
  }
}

void StagingBuffer::free(StagingSlot &slot) {
  slot.present.clear();
  slot.filled = 0;
  slot.tickets.clear();
  free_.push_back(&slot);
  changed_.notify_all();
}

// Starts to write the dirty pages of the page cache. The function ignores the results of the system calls, because
// flush() reports write errors.
void StagingBuffer::write_behind() {
  for (std::size_t i = 0; i < ranges_.size(); ++i)
    if (ranges_[i].cached.exchange(false))
      static_cast<void>(sync_file_range(store_.files()[i].buffered_descriptor(), 0, 0, SYNC_FILE_RANGE_WRITE));
}

void StagingBuffer::flush() {
  std::unique_lock lock(mutex_);
  while (!open_.empty()) send(*open_.begin()->second, lock);
  lock.unlock();
  pump_.drain();
  assert(std::ranges::all_of(
      ranges_, [](const StagedRange &one) { return one.present.load() == one.range.end - one.range.begin; }));
}

Snapshots::Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
                     const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes)
    : grid_(grid), window_(window), fields_(fields), bytes_(bytes), snapshots_(std::move(snapshots)) {
  if (empty()) return;
  std::vector<FileSpec> files;
  std::vector<ByteRange> ranges;
  for (const Snapshot &one : snapshots_) {
    by_step_.emplace(one.done, static_cast<std::uint32_t>(files.size()));
    files.push_back(
        {.path = one.path, .writable = true, .direct = one.direct, .folder = one.folder, .label = one.label});
    ranges.push_back(bytes_of(one, grid.item_bytes));
    coarse_.push_back(one.group == Extents{} ? nullptr
                                             : std::make_unique<CoarseBox>(one.box(), one.group, grid.item_bytes));
  }
  store_ = open_store(backend, files);
  staging_.emplace(*store_, ranges, sizes);
}

// Writes the rows of the rim together with the updated rows next to these rows. The rim is complete much earlier. If
// the rim were written immediately, each plane that is read ahead of the window would need an open slot.
void Snapshots::write(long done, long z0, long z1, const Rectangle &cells) {
  Rectangle part = cells;
  if (part.y0 == grid_.first_row()) part.y0 = 0;
  if (part.y1 == grid_.end_row()) part.y1 = grid_.ny;
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one) {
    const Snapshot &box = snapshots_[one->second];
    write_box(one->second, fields_.ring(FieldValue{box.field, box.age}, done), z0, z1, part);
  }
}

// Writes the newest values of the rim for all snapshots. Snapshots of previous values also get the newest values of the
// rim. The executor copies the rim to the second copies only after this call. The result is right, because the rim
// never changes. Its newest values and its previous values are equal.
void Snapshots::write_rim(long position, const Rectangle &cells) {
  const bool updated = position >= grid_.first_plane() && position < grid_.end_plane();
  if (updated && grid_.first_row() < grid_.end_row()) return;
  for (std::uint32_t file = 0; file < snapshots_.size(); ++file)
    write_box(file, fields_.ring(FieldValue{snapshots_[file].field, 0}, 0), position, position + 1, cells);
}

// Writes a part of each plane. If the part is as wide as the box, successive rows follow each other in the file, and
// one write stores all of them. If the part is a whole plane of the box, one write also stores successive planes.
void Snapshots::write_box(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &cells) {
  const Snapshot &box = snapshots_[file];
  const Rectangle part = intersection(cells, Rectangle{box.y0, box.y1, box.x0, box.x1});
  if (part.empty()) return;
  if (coarse_[file] != nullptr) return add_to_groups(file, ring, z0, z1, part);
  const bool is_wide = part.columns() == box.x1 - box.x0;
  const long rows = is_wide ? part.rows() : 1;
  const bool joined = is_wide && rows == box.y1 - box.y0 && !grid_.periodic_z;
  if (joined) {
    z0 = std::max(z0, box.z0);
    z1 = std::min(z1, box.z1);
  }
  const long planes = joined ? z1 - z0 : 1;
  failure_.guard([&] {
    for (long z = z0; z < z1; z += planes) {
      if (grid_.plane(z) < box.z0 || grid_.plane(z) >= box.z1) continue;
      for (long y = part.y0; y < part.y1; y += rows)
        write_rows(file, ring, z, z + planes, Rectangle{y, y + rows, part.x0, part.x1});
    }
  });
}

// Writes rows that follow each other in the file, slot by slot.
void Snapshots::write_rows(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &rows) {
  const Snapshot &box = snapshots_[file];
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(rows.columns()) * grid_.item_bytes;
  const long plane = grid_.plane(z0) - box.z0;
  const long cell =
      // the number of the first cell in the box
      (plane * (box.y1 - box.y0) + rows.y0 - box.y0) * (box.x1 - box.x0) + rows.x0 - box.x0;
  const std::uint64_t first = box.offset + static_cast<std::uint64_t>(cell) * grid_.item_bytes;
  const std::uint64_t last = first + static_cast<std::uint64_t>((z1 - z0) * rows.rows()) * row_bytes;
  const std::size_t slot_bytes = staging_->slot_bytes();
  for (std::uint64_t begin = first; begin < last;) {
    const std::uint64_t end = std::min(last, round_down(begin, slot_bytes) + slot_bytes);
    std::byte *to = staging_->take(file, {begin, end});
    for (std::uint64_t at = begin - first; at < end - first;) {
      const std::uint64_t in_row = at % row_bytes, length = std::min(row_bytes - in_row, end - first - at);
      const long row = static_cast<long>(at / row_bytes);
      const long z = z0 + row / rows.rows(), y = rows.y0 + row % rows.rows();
      std::memcpy(to, window_.cell(ring, z, y, rows.x0) + in_row, length);
      to += length;
      at += length;
    }
    staging_->put(file, {begin, end});
    bytes_.fetch_add(end - begin, std::memory_order_relaxed);
    begin = end;
  }
}

void Snapshots::add_to_groups(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &cells) {
  thread_local CoarseBox::CoarseRow row;
  const Snapshot &box = snapshots_[file];
  failure_.guard([&] {
    for (long z = z0; z < z1; ++z) {
      const long plane = grid_.plane(z) - box.z0;
      if (plane < 0 || plane >= box.z1 - box.z0) continue;
      for (long y = cells.y0; y < cells.y1; ++y)
        if (coarse_[file]->add(plane, y - box.y0, cells.x0 - box.x0, cells.x1 - box.x0,
                               window_.cell(ring, z, y, cells.x0), row))
          write_means(file, row);
    }
  });
}

// Rounds a row of means to the type of the field. Writes this row slot by slot.
void Snapshots::write_means(std::uint32_t file, const CoarseBox::CoarseRow &row) {
  const Snapshot &box = snapshots_[file];
  const Extents groups = groups_of(box.box(), box.group);
  const std::size_t item_bytes = grid_.item_bytes, slot_bytes = staging_->slot_bytes();
  const auto row_bytes = static_cast<std::uint64_t>(groups.x) * item_bytes;
  const std::uint64_t first = box.offset + static_cast<std::uint64_t>(row.z * groups.y + row.y) * row_bytes;
  thread_local std::vector<std::byte> rounded;
  rounded.resize(row_bytes);
  if (item_bytes == sizeof(float))
    std::ranges::transform(row.means, reinterpret_cast<float *>(rounded.data()),
                           [](double mean) { return static_cast<float>(mean); });
  else
    std::memcpy(rounded.data(), row.means.data(), row_bytes);
  for (std::uint64_t begin = first, last = first + row_bytes; begin < last;) {
    const std::uint64_t end = std::min(last, round_down(begin, slot_bytes) + slot_bytes);
    std::memcpy(staging_->take(file, {begin, end}), rounded.data() + (begin - first), end - begin);
    staging_->put(file, {begin, end});
    bytes_.fetch_add(end - begin, std::memory_order_relaxed);
    begin = end;
  }
}

std::vector<std::uint32_t> Snapshots::sums() const {
  std::vector<std::uint32_t> result;
  for (std::uint32_t file = 0; file < snapshots_.size(); ++file) result.push_back(staging_->sum(file));
  return result;
}

void Snapshots::write_behind() {
  failure_.rethrow();
  if (!empty()) staging_->write_behind();
}

void Snapshots::flush() {
  if (empty()) return;
  failure_.rethrow();
  assert(std::ranges::all_of(coarse_, [](const auto &one) { return one == nullptr || one->has_no_open_rows(); }));
  staging_->flush();
  store_->flush();
  for (const File &file : store_->files())
    static_cast<void>(posix_fadvise(file.buffered_descriptor(), 0, 0, POSIX_FADV_DONTNEED));
}

}  // namespace outcrop
