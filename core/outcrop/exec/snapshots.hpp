// Boxes of fields written to files as they are computed: no plane stays in memory for them.
//
// The thread that has updated the last level of a step copies the part of its rows that lies in the box to a staging buffer,
// from which bytes of the file are written past the page cache:
//
//     file:  | header | box: z, y, x in C order, without padding | index |          offset = header bytes
//                           ▒▒▒▒ rows of one tile
//
// The page cache is used for pages at either end of the box that other bytes share, and for whole boxes that are not to be written
// directly, or cannot be.
//
// In the staging buffer bytes are collected and stay while they are written, so that the threads that computed them need not
// wait:
//
//     file     | slot 6         | slot 7         | slot 8         |     slots of a file, at multiples of their size
//     tile 1        ▒▒▒▒▒▒▒▒
//     tile 2                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                 slot 7 is complete and is sent, 6 and 8 are open
//
//     free ──take()──► open ──put() of the last bytes──► sent ──pump──► free
//                         └── the longest untouched, if too many are open ──►
//
// Writing the rows of each tile by themselves would be slow: a tile has some rows of many planes, and a device needs long writes
// for its full speed.
//
// Direct I/O writes whole pages. The other bytes of a slot (at either end of the file's bytes, or because it was sent early) go
// through the page cache. Every byte comes once, so the rest of such a page will be such a part, too: no page is written both
// ways.
//
// A slot's checksum is taken when it is sent: its bytes have just come, and each byte comes once.
//
// Planning decides how much memory the budget allows (plan/memory.py). A quarter of the slots is for transfers: about ten
// milliseconds of writing, which is about how long the pump's thread may wait for a processor that updates keep busy.
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

/// `slot_bytes` is a multiple of pages.
struct StagingSizes {
  std::size_t slots = 64, slot_bytes = 256 << 10;
};

/// Bytes begin <= i < end of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

class StagingBuffer {
 public:
  /// For the bytes `ranges[i]` of file i of the store, which must outlive this and is used by nothing else meanwhile.
  StagingBuffer(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes);

  std::size_t slot_bytes() const { return sizes_.slot_bytes; }

  /// The memory for these bytes of a file, which lie between two multiples of slot_bytes and come once. Waits for room if
  /// necessary. put() must follow, before the next take() of this thread. Any thread. Throws StorageError if a write failed.
  std::byte *take(std::uint32_t file, ByteRange bytes);

  /// The bytes are in their memory. Throws StorageError if a write failed.
  void put(std::uint32_t file, ByteRange bytes);

  /// Begins write-back of the pages in the page cache.
  void write_behind();

  /// Waits until all bytes have been written; all must have come. Throws StorageError.
  void flush();

  /// CRC32C of the bytes of a file, in their order there; after flush().
  std::uint32_t sum(std::uint32_t file) const { return ranges_[file].sum.load(std::memory_order_relaxed); }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // number of the file and of the slot in it
  struct StagingSlot {
    std::byte *data = nullptr;
    Key key{};
    std::vector<ByteRange> came{};  // ascending, with gaps between
    std::size_t missing = 0;
    unsigned writers = 0;           // between take() and put()
    std::uint64_t touched = 0;      // number of the last take()
    std::vector<Ticket> tickets{};  // of its transfers
  };
  struct StagedRange {
    ByteRange range;
    std::atomic<bool> cached = false;  // a part is in the page cache only
    std::atomic<std::uint64_t> came = 0;
    std::atomic<std::uint32_t> sum = 0;  // of the bytes sent, shifted by those that follow them (transfers.hpp)
  };

  StagingSlot &open(Key key);
  void make_room(std::unique_lock<std::mutex> &lock);
  StagingSlot *longest_untouched();
  void send(StagingSlot &slot, std::unique_lock<std::mutex> &lock);
  void write(StagingSlot &slot);
  void write_to_cache(std::uint32_t file, ByteRange bytes, const std::byte *data);
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
  Pump pump_;                       // last: its thread ends first
};

/// A box z0 <= z < z1 and so on of a field after `done` steps of the pass (0: before the first step), and the existing file to
/// which it is written from byte `offset` on, past the page cache if that is possible.
struct Snapshot {
  std::size_t field = 0;
  long done = 1;
  long z0 = 0, z1 = 0, y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  std::string path;
  std::uint64_t offset = 0;
  bool direct = true;
  int folder = -1;         ///< the path is relative to this open folder, see FileSpec
  std::string label = "";  ///< names the file in messages instead of the path
};

/// The snapshots of a pass. All arguments must outlive this.
class Snapshots {
 public:
  /// Opens the files, for a backend of that name. Adds the bytes written to `bytes`. Throws StorageError.
  Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
            const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes);

  /// Writes the part `cells` of a plane, of rows that are updated, as it is after `done` steps. Errors are kept for the next
  /// function that throws.
  void write(long done, long position, const Rectangle &cells);

  /// Writes cells that no step changes, where write() does not.
  void write_rim(long position, const Rectangle &cells);

  /// Begins write-back of the pages in the page cache, while no other thread writes. Throws the first StorageError.
  void write_behind();

  /// Waits until everything is on the devices. Throws StorageError.
  void flush();
  bool empty() const { return outputs_.empty(); }

  /// CRC32C of the bytes of each box, in its order in the file; after flush().
  std::vector<std::uint32_t> sums() const;

 private:
  struct Output {
    Snapshot snapshot;
    std::uint32_t file = 0;  // of the store
  };

  void write(const Output &output, std::size_t ring, long position, const Rectangle &cells);
  void write_rows(const Output &output, std::size_t ring, long position, const Rectangle &rows);
  void check() const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::atomic<std::uint64_t> &bytes_;
  std::deque<Output> outputs_;
  std::multimap<long, const Output *> by_step_;
  std::unique_ptr<Store> store_;
  std::optional<StagingBuffer> staging_;
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<StorageError> error_;
};

}  // namespace outcrop
