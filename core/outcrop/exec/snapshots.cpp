#include "outcrop/exec/snapshots.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace outcrop {
namespace {

constexpr std::size_t buffer_bytes = 256 << 10;     // rows that are longer are written one by one, from where they lie
constexpr std::uint64_t batch_bytes = 8u << 20;     // whose write-back begins at once
constexpr std::uint64_t pending_bytes = 32u << 20;  // of batches on their way

thread_local std::vector<std::byte> buffer;

// Advice to the system; what goes wrong with the data themselves is reported by the flush.
void begin_write_back(int descriptor, std::uint64_t begin, std::uint64_t end) {
#if defined(__linux__)
  static_cast<void>(sync_file_range(descriptor, static_cast<off64_t>(begin), static_cast<off64_t>(end - begin),
                                    SYNC_FILE_RANGE_WRITE));
#endif
}

void wait_and_drop(int descriptor, std::uint64_t begin, std::uint64_t end) {
  const auto first = static_cast<off_t>(begin), length = static_cast<off_t>(end - begin);
#if defined(__linux__)
  static_cast<void>(sync_file_range(descriptor, first, length,
                                    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
#endif
  static_cast<void>(posix_fadvise(descriptor, first, length, POSIX_FADV_DONTNEED));
}

}  // namespace

void Snapshots::Range::add(std::uint64_t offset, std::uint64_t length) {
  begin = std::min(begin, offset);
  end = std::max(end, offset + length);
  bytes += length;
}

Snapshots::Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
                     std::atomic<std::uint64_t> &bytes)
    : grid_(grid), window_(window), fields_(fields), bytes_(bytes) {
  for (Snapshot &one : snapshots) {
    File file = File::open(one.path, true, false);
    Output &output = outputs_.emplace_back(std::move(one), std::move(file));
    by_step_.emplace(output.snapshot.done, &output);
  }
}

void Snapshots::write(long done, long position, const Cut &cut) {
  const auto [begin, end] = by_step_.equal_range(done);
  for (auto one = begin; one != end; ++one)
    write(*one->second, fields_.ring(Entry{one->second->snapshot.field, 0}, done), position, cut);
}

void Snapshots::write_rim(long position, const Cut &cut) {
  for (Output &output : outputs_) write(output, fields_.ring(Entry{output.snapshot.field, 0}, 0), position, cut);
}

void Snapshots::write(Output &output, std::size_t ring, long position, const Cut &cut) {
  const Snapshot &box = output.snapshot;
  const long z = grid_.plane(position);
  if (z < box.z0 || z >= box.z1) return;
  const Cut part = intersection(cut, Cut{box.y0, box.y1, box.x0, box.x1});
  if (!part.empty() && !failed_.load(std::memory_order_relaxed)) write_rows(output, ring, position, part);
}

// Where the box is as wide as the part, its rows follow each other in the file, too.
void Snapshots::write_rows(Output &output, std::size_t ring, long position, const Cut &part) {
  const Snapshot &box = output.snapshot;
  const std::size_t row_bytes = static_cast<std::size_t>(part.columns()) * grid_.item_bytes;
  const long plane = grid_.plane(position) - box.z0, rows = box.y1 - box.y0, columns = box.x1 - box.x0;
  const auto rows_at_once = part.columns() == columns ? std::max(1L, static_cast<long>(buffer_bytes / row_bytes)) : 1L;
  for (long y = part.y0; y < part.y1; y += rows_at_once) {
    const long end = std::min(part.y1, y + rows_at_once);
    const auto cell = static_cast<std::uint64_t>((plane * rows + y - box.y0) * columns + part.x0 - box.x0);
    const std::uint64_t offset = box.offset + cell * grid_.item_bytes;
    const std::byte *data = window_.cell(ring, position, y, part.x0);
    if (end - y > 1) {
      buffer.resize(buffer_bytes);
      for (long row = y; row < end; ++row)
        std::memcpy(buffer.data() + static_cast<std::size_t>(row - y) * row_bytes,
                    window_.cell(ring, position, row, part.x0), row_bytes);
      data = buffer.data();
    }
    write_bytes(output, position, data, static_cast<std::size_t>(end - y) * row_bytes, offset);
  }
}

void Snapshots::write_bytes(Output &output, long position, const std::byte *data, std::size_t length,
                            std::uint64_t offset) {
  for (std::size_t done = 0; done < length;) {
    const ssize_t count =
        pwrite(output.file.buffered_descriptor(), data + done, length - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int reason = count < 0 ? errno : 0;
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_.emplace("write", output.file.path(), offset + done, length - done, reason);
      failed_ = true;
      return;
    }
    done += static_cast<std::size_t>(count);
  }
  bytes_.fetch_add(length, std::memory_order_relaxed);
  Range batch;
  {
    const std::lock_guard lock(output.mutex);
    Range &range = output.ranges[grid_.periodic_z ? position % 2 : 0];
    range.add(offset, length);
    if (range.bytes >= batch_bytes) batch = std::exchange(range, Range{});
  }
  if (batch.bytes > 0) send(output, batch);
}

// Whoever has written a batch too many waits for the first of them: then the devices are slower than the updates.
void Snapshots::send(const Output &output, const Range &range) {
  begin_write_back(output.file.buffered_descriptor(), range.begin, range.end);
  const std::lock_guard lock(pending_mutex_);
  pending_.push_back({&output, range});
  bytes_pending_ += range.bytes;
  while (bytes_pending_ > pending_bytes) drop_first();
}

void Snapshots::write_behind() {
  if (failed_) throw StorageError(*error_);
  for (Output &output : outputs_)
    for (Range &range : output.ranges)
      if (range.bytes > 0) send(output, std::exchange(range, Range{}));
}

void Snapshots::drop_first() {
  const Pending &first = pending_.front();
  wait_and_drop(first.output->file.buffered_descriptor(), first.range.begin, first.range.end);
  bytes_pending_ -= first.range.bytes;
  pending_.pop_front();
}

void Snapshots::flush() {
  write_behind();
  for (const Output &output : outputs_) output.file.flush();
  while (!pending_.empty()) drop_first();
}

}  // namespace outcrop
