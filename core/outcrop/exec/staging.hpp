// Memory in which bytes for files come together and lie while they are on their way, so that whoever has computed them need not wait.
//
//     file     | slot 6         | slot 7         | slot 8         |     of a file, at multiples of their size
//     tile 1        ▒▒▒▒▒▒▒▒
//     tile 2                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                 slot 7 is complete and is sent, 6 and 8 are open
//
//     free ──take()──► open ──put() of the last bytes──► sent ──pump──► free
//                         └── the longest untouched, where too many are open ──►
//
// A tile has some rows of many planes, and a device that takes long writes at its full speed does not take those rows at it.
//
// Direct I/O takes whole pages. What a slot has of others when it is sent (at either end of the file's bytes, or because it had to
// go early) takes the way through the page cache. Every byte comes once, so the rest of such a page will be such a part, too: no
// page is written both ways.
//
// A slot's bytes are summed up when it is sent: they have just come, and each byte comes once.
//
// How much memory the budget allows is decided by planning (plan/memory.py). A quarter of the slots is for what is on its
// way: some ten milliseconds of writing, about as long as the pump's thread may wait for a processor that updates keep busy.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/pump.hpp"

namespace outcrop {

/// `slots` of `slot_bytes`, a multiple of pages.
struct StagingSizes {
  std::size_t slots = 64, slot_bytes = 256 << 10;
};

/// Bytes begin <= i < end of a file.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

class Staging {
 public:
  /// For the bytes `ranges[i]` of file i of the store, which must outlive this and belongs to it.
  Staging(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes);

  std::size_t slot_bytes() const { return sizes_.slot_bytes; }

  /// Where to put these bytes of a file, which lie between two multiples of slot_bytes and come once; waits for room if need
  /// be. put() must follow, and no other take() of this thread before. Any thread. Throws StorageError when a write has failed.
  std::byte *take(std::uint32_t file, ByteRange bytes);

  /// They are there. Throws StorageError when a write has failed.
  void put(std::uint32_t file, ByteRange bytes);

  /// Begins write-back of what went to the page cache.
  void write_behind();

  /// Waits until all that came has been written; that is everything. Throws StorageError.
  void flush();

  /// CRC32C of the bytes of a file, in their order there; after flush().
  std::uint32_t sum(std::uint32_t file) const { return targets_[file].sum.load(std::memory_order_relaxed); }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // number of the file and of the slot in it
  struct Slot {
    std::byte *data = nullptr;
    Key key{};
    std::vector<ByteRange> came{};  // ascending, with gaps between
    std::size_t missing = 0;
    unsigned writers = 0;           // between take() and put()
    std::uint64_t touched = 0;      // number of the last take()
    std::vector<Ticket> tickets{};  // of what was sent
  };
  struct Target {
    ByteRange range;
    std::atomic<bool> is_cached = false;  // some of it is in the page cache only
    std::atomic<std::uint64_t> came = 0;
    std::atomic<std::uint32_t> sum = 0;  // of what was sent, moved over the bytes that follow it (plane_sums.hpp)
  };

  Slot &open(Key key);
  void make_room(std::unique_lock<std::mutex> &lock);
  Slot *longest_untouched();
  void send(Slot &slot, std::unique_lock<std::mutex> &lock);
  void write(Slot &slot);
  void write_to_cache(std::uint32_t file, ByteRange bytes, const std::byte *data);
  void free(Slot &slot);

  const StagingSizes sizes_;
  const std::size_t open_most_;
  Store &store_;
  std::deque<Target> targets_;
  AlignedMemory memory_;
  std::deque<Slot> slots_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t clock_ = 0;
  std::vector<Slot *> free_;
  std::map<Key, Slot *> open_;
  std::deque<Slot *> sent_;  // oldest first
  Pump pump_;                // last: its thread ends first
};

}  // namespace outcrop
