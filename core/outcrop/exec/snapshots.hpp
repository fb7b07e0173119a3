// Writes boxes of fields to files while the fields are computed. No plane stays in memory longer because of a snapshot.
//
// A thread that updates rows at the last level of a step copies the cells in the box to a staging buffer. From the
// staging buffer, the bytes are written to the file past the page cache:
//
//     file:  | header | box: z, y, x in C order, without padding | index |          offset = header bytes
//                           ▒▒▒▒ rows of one tile
//
// The staging buffer keeps bytes until they are written, so the threads that have computed the bytes do not wait for
// the device. In this drawing, slot 7 is complete and is sent, and the slots 6 and 8 are open:
//
//     file     | slot 6         | slot 7         | slot 8         |     slots of a file, at multiples of their size
//     tile 1        ▒▒▒▒▒▒▒▒
//     tile 2                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//
//     free ──take()──► open ──put() of the last bytes──► sent ──pump──► free
//                         └── if too many are open, the slot with the most bytes ──►
//
// The staging buffer also makes writes longer. A tile has only a few rows in each of many planes, and a device is slow
// if each write is short. plan/staging.py chooses large slots, but not so large that too many of them are open. If too
// many slots are open, the slot with the most bytes is sent early. If a slot has not been used for a long time, it is
// sent first, because another block will fill it.
//
// Direct I/O writes whole pages. Pages at both ends of the box, and pages of a slot that was sent early, may be
// incomplete. All bytes of an incomplete page go through the page cache, including the bytes that come later. So no
// page is written both directly and through the page cache. Boxes that cannot or should not be written directly go
// through the page cache, too.
//
// The checksum of a slot is computed when the slot is sent, because its bytes are still in a cache then. A quarter of
// the slots is reserved for transfers. If all processors are busy with updates, the I/O thread may wait about ten
// milliseconds for a processor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/threads.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// The size of a staging buffer. `slot_bytes` is a multiple of the page size.
struct StagingSizes {
  std::size_t slots = 64, slot_bytes = 256 << 10;
};

/// A range of bytes of a file: all bytes i with begin <= i < end.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

class StagingBuffer {
 public:
  /// Makes a buffer for the bytes `ranges[i]` of each file i of the store. The store must outlive the buffer. While the
  /// buffer exists, no other code may use the store.
  StagingBuffer(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes);

  std::size_t slot_bytes() const { return sizes_.slot_bytes; }

  /// Returns memory for these bytes of a file. All bytes must be in the same slot, and each byte may be taken only
  /// once. Waits for a free slot if necessary. Any thread may call take(), but must call put() before it calls take()
  /// again. Throws StorageError if a write failed.
  std::byte *take(std::uint32_t file, ByteRange bytes);

  /// Marks bytes as complete, which were copied to the memory from take(). Throws StorageError if a write failed.
  void put(std::uint32_t file, ByteRange bytes);

  /// Starts to write the dirty pages of the page cache to the device.
  void write_behind();

  /// Waits until all bytes of all ranges have been written. put() must have been called for each byte. Throws
  /// StorageError.
  void flush();

  /// Returns the CRC32C of the bytes of a file, in the order of the file. The result is valid after flush().
  std::uint32_t sum(std::uint32_t file) const { return ranges_[file].sum.load(std::memory_order_relaxed); }

 private:
  // the number of the file, and the number of the slot in this file
  using Key = std::pair<std::uint32_t, std::uint64_t>;
  struct StagingSlot {
    std::byte *data = nullptr;
    Key key{};
    std::vector<ByteRange> present{};  // the bytes that the slot has: ascending ranges with gaps in between
    std::size_t filled = 0;            // number of bytes in `present`
    std::size_t missing = 0;           // number of bytes of the slot that are still missing
    unsigned writers = 0;              // number of threads that have called take() and not yet put()
    std::uint64_t used = 0;            // the time of the last take(), counted in calls of take()
    std::vector<Ticket> tickets{};     // the transfers that write the slot
  };
  struct StagedRange {
    ByteRange range;
    std::atomic<bool> cached = false;        // true if some bytes are only in the page cache
    std::atomic<std::uint64_t> present = 0;  // number of bytes that put() has marked as complete
    // CRC32C of the bytes sent, each part shifted by the bytes that follow it (transfers.hpp)
    std::atomic<std::uint32_t> sum = 0;
  };

  StagingSlot &open(Key key);
  void make_room(std::unique_lock<std::mutex> &lock);
  StagingSlot *slot_to_send_early() const;
  void send(StagingSlot &slot, std::unique_lock<std::mutex> &lock);
  void write(StagingSlot &slot);
  template <typename Work>
  void without_lock(std::unique_lock<std::mutex> &lock, StagingSlot &slot, const Work &work);
  void free(StagingSlot &slot);

  const StagingSizes sizes_;
  const std::size_t max_open_;
  Store &store_;
  std::deque<StagedRange> ranges_;
  AlignedMemory memory_;
  std::deque<StagingSlot> slots_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t clock_ = 0;
  std::vector<StagingSlot *> free_;
  std::map<Key, StagingSlot *> open_;
  std::deque<StagingSlot *> sent_;  // oldest first
  // the last member, so that the I/O thread ends before the other members are destroyed
  Pump pump_;
};

/// A box z0 <= z < z1, and the same for y and x, of a field after `done` steps of the pass. If `done` is 0, the box has
/// the values before the first step. The box is written to an existing file, from byte `offset` on.
///
/// If `age` is 1, the box has the previous values of the field, which must be arrays on disk. The rim never changes, so
/// the pass sets the rim of the previous values in z and y to the newest values. The box contains these values, too.
struct Snapshot {
  std::size_t field = 0;
  long done = 1;
  long z0 = 0, z1 = 0, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  std::string path;
  std::uint64_t offset = 0;
  bool direct = true;
  int folder = -1;         ///< if not -1, the path is relative to this open folder (see FileSpec)
  std::string label = "";  ///< names the file in messages instead of the path
  int age = 0;             ///< as in FieldValue
};

/// Writes the snapshots of a pass. All arguments must outlive this object.
class Snapshots {
 public:
  /// Opens the files with the backend of this name. Increases `bytes` by the number of bytes that snapshots write.
  /// Throws StorageError.
  Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
            const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes);

  /// Writes the part `cells` of the planes z0 <= position < z1. The cells must be in updated rows, and must hold their
  /// values after `done` steps. Does not throw. After a failure, write_behind() and flush() throw the error.
  void write(long done, long z0, long z1, const Rectangle &cells);

  /// Writes the cells that no step changes. Skips the cells that write() writes.
  void write_rim(long position, const Rectangle &cells);

  /// Starts to write pages of the page cache to the devices. No other thread may call write() at that time. Throws
  /// StorageError.
  void write_behind();

  /// Waits until all bytes are on the devices. Throws StorageError.
  void flush();
  bool empty() const { return snapshots_.empty(); }

  /// Returns, for each box, the CRC32C of its bytes in the order of the file. The result is valid after flush().
  std::vector<std::uint32_t> sums() const;

 private:
  void write_box(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &cells);
  void write_rows(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &rows);

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::atomic<std::uint64_t> &bytes_;
  const std::vector<Snapshot> snapshots_;       // snapshot i is file i of the store
  std::multimap<long, std::uint32_t> by_step_;  // numbers of snapshots
  std::unique_ptr<Store> store_;
  std::optional<StagingBuffer> staging_;
  FirstFailure failure_;
};

}  // namespace outcrop
