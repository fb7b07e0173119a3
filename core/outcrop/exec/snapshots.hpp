// Boxes of fields, written to files as they are computed. No plane stays in memory for them.
//
// The thread that updates the last level of a step copies the part of its rows in the box to a staging buffer. From
// there the bytes are written to the file past the page cache:
//
//     file:  | header | box: z, y, x in C order, without padding | index |          offset = header bytes
//                           ▒▒▒▒ rows of one tile
//
// The page cache is used in two cases: for pages at both ends of the box that also contain other bytes, and for boxes
// that cannot, or should not, be written directly.
//
// The staging buffer collects bytes and keeps them while they are written, so that the threads that computed them do
// not wait:
//
//     file     | slot 6         | slot 7         | slot 8         |     slots of a file, at multiples of their size
//     tile 1        ▒▒▒▒▒▒▒▒
//     tile 2                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                 slot 7 is complete and is sent; 6 and 8 are open
//
//     free ──take()──► open ──put() of the last bytes──► sent ──pump──► free
//                         └── if too many are open: the one longest unused ──►
//
// Writing the rows of each tile separately would be slow, because a tile has some rows of many planes, and a device
// reaches its full speed only with long writes.
//
// Direct I/O writes whole pages. The other bytes of a slot (at both ends of the file's bytes, or because the slot was
// sent early) go through the page cache. Each byte is sent once, so the rest of such a page also goes through the page
// cache, and no page is written in both ways.
//
// The checksum of a slot is taken when the slot is sent, because its bytes are then still in a cache.
//
// Planning decides how much memory the budget allows (plan/memory.py). A quarter of the slots is reserved for
// transfers. That is about ten milliseconds of writing. The I/O thread may have to wait that long for a processor that
// is busy with updates.
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
#include "outcrop/base/error.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// The size of a staging buffer. `slot_bytes` is a multiple of a page.
struct StagingSizes {
  std::size_t slots = 64, slot_bytes = 256 << 10;
};

/// Bytes begin <= i < end of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

class StagingBuffer {
 public:
  /// A buffer for the bytes `ranges[i]` of file i of the store. The store must outlive this, and no other code may use
  /// it.
  StagingBuffer(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes);

  std::size_t slot_bytes() const { return sizes_.slot_bytes; }

  /// The memory for these bytes of a file. They must be in one slot, and each byte may be taken only once. Waits for
  /// room if necessary. The thread must call put() before its next take(). Any thread may call this. Throws
  /// StorageError if a write failed.
  std::byte *take(std::uint32_t file, ByteRange bytes);

  /// Says that the bytes are in the memory of take(). Throws StorageError if a write failed.
  void put(std::uint32_t file, ByteRange bytes);

  /// Starts the write-back of the pages in the page cache.
  void write_behind();

  /// Waits until all bytes of all ranges have been written; each must have been put. Throws StorageError.
  void flush();

  /// CRC32C of the bytes of a file, in the order of the file. Valid after flush().
  std::uint32_t sum(std::uint32_t file) const { return ranges_[file].sum.load(std::memory_order_relaxed); }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // number of the file, and of the slot in it
  struct StagingSlot {
    std::byte *data = nullptr;
    Key key{};
    std::vector<ByteRange> present{};  // the bytes that have been put: ascending, with gaps in between
    std::size_t missing = 0;           // number of bytes that have not been put
    unsigned writers = 0;              // number of threads between take() and put()
    std::uint64_t used = 0;            // number of the last take()
    std::vector<Ticket> tickets{};     // the transfers of the slot
  };
  struct StagedRange {
    ByteRange range;
    std::atomic<bool> cached = false;        // a part is only in the page cache
    std::atomic<std::uint64_t> present = 0;  // number of bytes that have been put
    std::atomic<std::uint32_t> sum = 0;      // of the bytes sent, shifted by the bytes that follow them (transfers.hpp)
  };

  StagingSlot &open(Key key);
  void make_room(std::unique_lock<std::mutex> &lock);
  void send(StagingSlot &slot, std::unique_lock<std::mutex> &lock);
  void write(StagingSlot &slot);
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
  Pump pump_;                       // the last member, so that its thread ends first
};

/// A box z0 <= z < z1, and the same for y and x, of a field after `done` steps of the pass (0: before the first step).
/// It is written to an existing file from byte `offset` on, past the page cache if that is possible.
struct Snapshot {
  std::size_t field = 0;
  long done = 1;
  long z0 = 0, z1 = 0, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  std::string path;
  std::uint64_t offset = 0;
  bool direct = true;
  int folder = -1;         ///< if not -1, the path is relative to this open folder, see FileSpec
  std::string label = "";  ///< names the file in messages instead of the path
};

/// The snapshots of a pass. All arguments must outlive this.
class Snapshots {
 public:
  /// Opens the files with the named backend. Adds the written bytes to `bytes`. Throws StorageError.
  Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
            const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes);

  /// Writes the part `cells` of a plane, with its values after `done` steps. The rows are updated ones. Does not throw:
  /// the next call of write_behind() or flush() throws the error.
  void write(long done, long position, const Rectangle &cells);

  /// Writes the cells that no step changes and that write() does not write.
  void write_rim(long position, const Rectangle &cells);

  /// Starts the write-back of the pages in the page cache. No other thread may write at the same time. Throws the first
  /// StorageError.
  void write_behind();

  /// Waits until all bytes are on the devices. Throws StorageError.
  void flush();
  bool empty() const { return snapshots_.empty(); }

  /// CRC32C of the bytes of each box, in the order of the file. Valid after flush().
  std::vector<std::uint32_t> sums() const;

 private:
  void write_box(std::uint32_t file, std::size_t ring, long position, const Rectangle &cells);
  void write_rows(std::uint32_t file, std::size_t ring, long position, const Rectangle &rows);
  void check() const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::atomic<std::uint64_t> &bytes_;
  const std::vector<Snapshot> snapshots_;       // snapshot i is written to file i of the store
  std::multimap<long, std::uint32_t> by_step_;  // numbers of snapshots
  std::unique_ptr<Store> store_;
  std::optional<StagingBuffer> staging_;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<StorageError> error_;
};

}  // namespace outcrop
