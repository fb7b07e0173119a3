#include "outcrop/exec/snapshots.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "outcrop/base/round.hpp"
#include "outcrop/storage/backends.hpp"

namespace outcrop {
namespace {

constexpr std::uint64_t page_bytes = OpenPages::page_bytes;

// Advice to the system; what goes wrong with the data themselves is reported by the flush.
void begin_write_back(int descriptor) {
#if defined(__linux__)
  static_cast<void>(sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE));
#endif
}

// First byte of the file behind the box.
std::uint64_t end_of(const Snapshot &box, std::size_t item_bytes) {
  const auto cells = static_cast<std::uint64_t>((box.z1 - box.z0) * (box.y1 - box.y0) * (box.x1 - box.x0));
  return box.offset + cells * item_bytes;
}

}  // namespace

Snapshots::Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
                     const std::string &backend, SnapshotMemory memory, std::atomic<std::uint64_t> &bytes)
    : grid_(grid), window_(window), fields_(fields), bytes_(bytes) {
  if (snapshots.empty()) return;
  std::vector<FileSpec> files;
  for (const Snapshot &one : snapshots) files.push_back({.path = one.path, .writable = true, .direct = one.direct});
  store_ = open_store(backend, files);
  pages_.emplace(memory.open_pages);
  std::uint32_t file = 0;
  for (Snapshot &one : snapshots) add(std::move(one), file++);
  staging_.emplace(*store_, memory.staging);
}

void Snapshots::add(Snapshot &&snapshot, std::uint32_t file) {
  const std::uint64_t end = end_of(snapshot, grid_.item_bytes);
  const bool direct = store_->files()[file].direct();
  [[maybe_unused]] const std::size_t number = pages_->add_file(direct ? end / page_bytes + 1 : 0);
  assert(number == file);
  if (direct) {  // headers and indices are written by others, through the page cache
    if (snapshot.offset % page_bytes != 0) pages_->refuse(file, snapshot.offset / page_bytes);
    if (end % page_bytes != 0) pages_->refuse(file, end / page_bytes);
  }
  const Output &output = outputs_.emplace_back(Output{std::move(snapshot), file, direct});
  by_step_.emplace(output.snapshot.done, &output);
}

void Snapshots::write(long done, long position, const Cut &cut) {
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one)
    write(*one->second, fields_.ring(Entry{one->second->snapshot.field, 0}, done), position, cut);
}

void Snapshots::write_rim(long position, const Cut &cut) {
  for (const Output &output : outputs_) write(output, fields_.ring(Entry{output.snapshot.field, 0}, 0), position, cut);
}

// Where the box is as wide as the part, its rows follow each other in the file, too.
void Snapshots::write(const Output &output, std::size_t ring, long position, const Cut &cut) {
  const Snapshot &box = output.snapshot;
  const long z = grid_.plane(position);
  if (z < box.z0 || z >= box.z1 || failed_.load(std::memory_order_relaxed)) return;
  const Cut part = intersection(cut, Cut{box.y0, box.y1, box.x0, box.x1});
  if (part.empty()) return;
  const long rows = part.columns() == box.x1 - box.x0 ? part.rows() : 1;
  try {
    for (long y = part.y0; y < part.y1; y += rows)
      write_rows(output, ring, position, Cut{y, y + rows, part.x0, part.x1});
  } catch (const StorageError &error) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_.emplace(error);
    failed_ = true;
  }
}

// Rows that follow each other in the file, cut where a slot of the staging memory is full: at multiples of its size.
void Snapshots::write_rows(const Output &output, std::size_t ring, long position, const Cut &rows) {
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
    Staging::Slot slot = staging_->take();
    std::byte *to = slot.data() + begin % page_bytes;
    for (std::uint64_t at = begin - first; at < end - first;) {
      const std::uint64_t in_row = at % row_bytes, length = std::min(row_bytes - in_row, end - first - at);
      const long y = rows.y0 + static_cast<long>(at / row_bytes);
      std::memcpy(to, window_.cell(ring, position, y, rows.x0) + in_row, length);
      to += length;
      at += length;
    }
    write_piece(output, begin, end, slot);
    bytes_.fetch_add(end - begin, std::memory_order_relaxed);
    begin = end;
  }
}

// Bytes begin <= i < end of a file; the first page that has any of them begins with the slot.
void Snapshots::write_piece(const Output &output, std::uint64_t begin, std::uint64_t end, Staging::Slot &slot) {
  const std::uint64_t base = round_down(begin, page_bytes);
  if (!output.direct) return write_to_cache(output, slot.data() + (begin - base), end - begin, begin);
  std::uint64_t first = round_up(begin, page_bytes), last = round_down(end, page_bytes);
  if (first > last) {  // inside one page
    first = base, last = base;
    if (completes(output, begin, end, slot.data())) last += page_bytes;
  } else {
    if (begin < first && completes(output, begin, first, slot.data())) first = base;
    if (last < end && completes(output, last, end, slot.data() + (last - base))) last += page_bytes;
  }
  if (first < last) slot.send(output.file, first, first - base, last - first);
}

// Whether the page is complete with these bytes, which are some of it. Otherwise nothing is left to be done for them.
bool Snapshots::completes(const Output &output, std::uint64_t begin, std::uint64_t end, std::byte *page) {
  const std::uint64_t number = begin / page_bytes, base = number * page_bytes;
  const OpenPages::Fate fate = pages_->add(output.file, number, begin - base, end - base, page);
  if (fate == OpenPages::Fate::refused) write_to_cache(output, page + (begin - base), end - begin, begin);
  return fate == OpenPages::Fate::complete;
}

void Snapshots::write_to_cache(const Output &output, const std::byte *data, std::size_t length,
                               std::uint64_t offset) const {
  const File &file = store_->files()[output.file];
  for (std::size_t done = 0; done < length;) {
    const ssize_t count =
        pwrite(file.buffered_descriptor(), data + done, length - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw StorageError("write", file.path(), offset + done, length - done, count < 0 ? errno : 0);
    done += static_cast<std::size_t>(count);
  }
}

void Snapshots::check() const {
  if (failed_) throw StorageError(*error_);
}

void Snapshots::write_behind() {
  check();
  for (const Output &output : outputs_)
    if (!output.direct) begin_write_back(store_->files()[output.file].buffered_descriptor());
}

void Snapshots::flush() {
  if (empty()) return;
  check();
  assert(pages_->size() == 0);
  staging_->drain();
  store_->flush();
  for (const File &file : store_->files())
    static_cast<void>(posix_fadvise(file.buffered_descriptor(), 0, 0, POSIX_FADV_DONTNEED));
}

}  // namespace outcrop
