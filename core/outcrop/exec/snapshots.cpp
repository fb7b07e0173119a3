#include "outcrop/exec/snapshots.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "outcrop/base/round.hpp"
#include "outcrop/storage/backends.hpp"

namespace outcrop {
namespace {

ByteRange bytes_of(const Snapshot &box, std::size_t item_bytes) {
  const auto cells = static_cast<std::uint64_t>((box.z1 - box.z0) * (box.y1 - box.y0) * (box.x1 - box.x0));
  return {box.offset, box.offset + cells * item_bytes};
}

}  // namespace

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

// With the rows of the rim beside it: alone, long before the others, they would open slots for all planes that are read ahead.
void Snapshots::write(long done, long position, const Cut &cut) {
  Cut part = cut;
  if (part.y0 == grid_.first_row()) part.y0 = 0;
  if (part.y1 == grid_.end_row()) part.y1 = grid_.ny;
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one)
    write(*one->second, fields_.ring(Entry{one->second->snapshot.field, 0}, done), position, part);
}

void Snapshots::write_rim(long position, const Cut &cut) {
  const bool is_updated = position >= grid_.first_plane() && position < grid_.end_plane();
  if (is_updated && grid_.first_row() < grid_.end_row()) return;
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

// Rows that follow each other in the file, cut where its slots are.
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
