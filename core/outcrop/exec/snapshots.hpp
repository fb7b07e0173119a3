// This file writes boxes of fields to files while the fields are computed. A file gets the cells of a box, or the means
// of groups of these cells. Snapshots do not change how long a plane stays in memory.
//
// The thread that updates rows at the last level of a step copies the cells of these rows in the box to a staging
// buffer. The bytes of the staging buffer are written directly to the file, without the page cache:
//
//     file:  | header | box: z, y, x in C order, without padding | index |          offset = header bytes
//                           ▒▒▒▒ rows of one tile
//
// The staging buffer keeps the bytes until they are written to the file. Therefore the threads that have computed the
// bytes do not wait for the device. In this drawing, slot 7 is complete and is sent, and the slots 6 and 8 are open:
//
//     file     | slot 6         | slot 7         | slot 8         |     slots of a file, at multiples of their size
//     tile 1        ▒▒▒▒▒▒▒▒
//     tile 2                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
//
//     free ──take()──► open ──put() of the last bytes──► sent ──pump──► free
//                         └── if too many are open, the slot with the most bytes ──►
//
// A tile updates only a few rows of each plane, but updates many planes. The staging buffer joins these short rows into
// long writes, because devices are faster with long writes. If too many slots are open, one slot is sent early, that
// is, before it is complete. If a slot has not been used for a long time, this slot is sent, because only a later block
// will fill it. Otherwise the slot with the most bytes is sent. plan/staging.py chooses the largest slot size for which
// all open slots fit into the buffer. So slots are rarely sent early.
//
// Direct I/O writes whole pages. The pages at both ends of the box can be incomplete. The pages of a slot that was sent
// early can also be incomplete. All bytes of an incomplete page go through the page cache, even bytes that arrive
// later. Therefore no page is written both directly and through the page cache. If a file does not allow direct I/O,
// all bytes of the file go through the page cache.
//
// The checksum of a slot is computed when the slot is sent. At this time, the bytes of the slot are still in a cache. A
// quarter of the slots is reserved for transfers. The I/O thread needs this reserve, because it may wait about ten
// milliseconds for a processor while other threads update.
#pragma once

#include <array>
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
#include <unordered_map>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/threads.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

// --- means of groups of cells ----------------------------------------------------------------------------------------
// Computes a coarser copy of a box of cells while a pass updates these cells. A group is a block of neighbouring cells,
// such as 4 x 4 x 4 cells. The value of a group is the mean of its cells. If the box does not consist of whole groups,
// the last group along an axis has fewer cells.
//
// The order in which rows arrive depends on the plan and on the threads. However, the bits of a mean must not depend on
// this order. Therefore the additions have a fixed order: first the cells of a row, then the planes, and then the rows
// of the group. All additions use double precision. Each of these three sums begins with the lowest position.
//
//     row of cells      |a b c d|e f g h|i j|         1. add along x: a + b + c + d, ...
//     plane 0, row 5     A       B       C
//     plane 1, row 5    +A      +B      +C            2. add along z: one total for each row of the group
//     ...
//     rows 4, 5, 6, 7   T4 + T5 + T6 + T7             3. add along y, divide, and round to the type of the field
//
// For a row of cells, the planes usually arrive in ascending order. Therefore a row of groups needs only one total for
// each row of cells. If a plane arrives too early, its sums wait until all lower planes have arrived. Planes arrive
// early in three cases. The planes of the upper rim are read before the planes below them. The planes of a periodic
// axis are read from both ends. Several chunks of planes are updated at the same time.
//
// The sums are in memory that is reserved before the pass. The reserved memory has room for one total and the waiting
// planes of each row. The reserved memory also has room for the sums of a row of groups that two tiles share. A plan
// with unusually thick slabs may need additional memory. This memory is allocated during the pass. The reserved memory
// is part of the budget (run/acquisition/pass_acquisition.py).

/// The extents of a group or of a box: the number of cells along each axis.
struct Extents {
  long z = 1, y = 1, x = 1;

  bool operator==(const Extents &) const = default;
  std::uint64_t cells() const {
    return static_cast<std::uint64_t>(z) * static_cast<std::uint64_t>(y) * static_cast<std::uint64_t>(x);
  }
};

/// Returns the number of groups along each axis of a box.
inline Extents groups_of(const Extents &box, const Extents &group) {
  return {(box.z + group.z - 1) / group.z, (box.y + group.y - 1) / group.y, (box.x + group.x - 1) / group.x};
}

/// Computes the means of all groups in one box. Several threads may call add() of the same object at the same time.
class CoarseBox {
 public:
  CoarseBox(const Extents &box, const Extents &group, std::size_t item_bytes);

  /// A row of groups. It has the position of the row in z and y, counted in groups, and the means of all groups of the
  /// row.
  struct CoarseRow {
    long z = 0, y = 0;
    std::vector<double> means;
  };

  /// Adds the cells x0 <= x < x1 of a row of the box to the sums. Each cell must be added once. If this call completes
  /// a row of groups, add() stores the means of these groups in `row`, and returns true.
  bool add(long z, long y, long x0, long x1, const std::byte *cells, CoarseRow &row);

  /// Returns true if each row of groups is complete or was never begun.
  bool has_no_open_rows() const;

 private:
  struct Total {
    double *sums = nullptr;                            // the sums of the planes 0 .. planes - 1 of the group
    long planes = 0;                                   // number of planes in `sums`
    std::vector<std::pair<long, double *>> waiting{};  // planes that arrived early, and their sums
  };
  struct OpenRow {
    std::vector<Total> totals;  // for each row of cells in the row of groups
    long complete = 0;          // number of totals that include all planes
    // The cells of those rows that arrive in several parts. A row arrives in parts if a block or a range of columns has
    // only some of the columns. The memory of `parts` is not part of the budget. Therefore plans of runs with snapshots
    // have no ranges of columns (tuner.py). The key is (z, y). The number counts the columns of the row that have
    // arrived.
    std::map<std::pair<long, long>, std::pair<std::vector<std::byte>, long>> parts{};
  };
  // The rows of groups are divided among several maps, so that threads seldom wait for each other's locks.
  struct OpenRows {
    mutable std::mutex mutex;
    std::unordered_map<std::uint64_t, OpenRow> rows{};
  };

  void sum_row(const std::byte *cells, double *sums) const;
  void add_plane(Total &total, long plane, const double *sums);
  void finish(OpenRow &open, CoarseRow &row);
  double *take();
  void give_back(double *sums);

  const Extents box_, group_, groups_;
  const std::size_t item_bytes_;
  std::array<OpenRows, 64> open_;
  std::mutex mutex_;  // protects the members below
  AlignedMemory memory_;
  std::vector<AlignedMemory> more_memory_;
  std::vector<double *> free_;
  std::size_t unused_;  // number of rows of `memory_` that were never taken
};

// --- snapshots -------------------------------------------------------------------------------------------------------

/// The number of slots of a staging buffer, and the size of each slot. `slot_bytes` is a multiple of the page size.
struct StagingSizes {
  std::size_t slots = 64, slot_bytes = 256 << 10;
};

/// A range of bytes of a file. It contains the bytes i with begin <= i < end.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

class StagingBuffer {
 public:
  /// Makes a buffer. For each file i of the store, the buffer takes the bytes `ranges[i]`. The store must outlive the
  /// buffer. While the buffer exists, no other code may use this store.
  StagingBuffer(Store &store, const std::vector<ByteRange> &ranges, StagingSizes sizes);

  std::size_t slot_bytes() const { return sizes_.slot_bytes; }

  /// Returns memory for the bytes `bytes` of a file. All bytes of one call must be in the same slot. The callers must
  /// take each byte of a file exactly once. If no slot is free, take() waits for a free slot. Any thread may call
  /// take(). After take(), a thread must call put() before it calls take() again. Throws StorageError if a write
  /// failed.
  std::byte *take(std::uint32_t file, ByteRange bytes);

  /// Marks bytes as complete. Before the call, the caller must have copied the bytes to the memory that take()
  /// returned. Throws StorageError if a write failed.
  void put(std::uint32_t file, ByteRange bytes);

  /// Starts to write the dirty pages of the page cache to the device.
  void write_behind();

  /// Waits until all bytes of all ranges have been written. Before the call, put() must have been called for each byte.
  /// Throws StorageError.
  void flush();

  /// Returns the CRC32C of all bytes that are written to a file. The result is valid after flush().
  std::uint32_t sum(std::uint32_t file) const { return ranges_[file].sum.load(std::memory_order_relaxed); }

 private:
  // the number of the file, and the number of the slot in this file
  using Key = std::pair<std::uint32_t, std::uint64_t>;
  struct StagingSlot {
    std::byte *data = nullptr;
    Key key{};
    std::vector<ByteRange> present{};  // the bytes that the slot has, as ascending ranges that do not touch
    std::size_t filled = 0;            // number of bytes in `present`
    std::size_t missing = 0;           // number of bytes of the slot that are still missing
    unsigned writers = 0;              // number of threads that have called take() and have not called put()
    std::uint64_t used = 0;            // the value of `clock_` at the last take() from this slot
    std::vector<Ticket> tickets{};     // the transfers that write the slot
  };
  struct StagedRange {
    ByteRange range;
    std::atomic<bool> cached = false;        // true if some bytes are only in the page cache
    std::atomic<std::uint64_t> present = 0;  // number of bytes that put() has marked as complete
    // the exclusive or of the checksums of all sent parts; each checksum is shifted by the number of bytes behind its
    // part (transfers.hpp)
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

/// A request to write cells of a field after `done` steps of the pass. The cells are z0 <= z < z1, y0 <= y < y1, x0 <=
/// x < x1. If `done` is 0, the request is for the values before the first step. The cells are written to an existing
/// file, from byte `offset` on. If `group` has more than one cell, the file gets the means of groups of cells instead
/// (CoarseBox).
///
/// If `age` is 1, the file gets the previous values of the field. These previous values must have an array on disk. In
/// the rim in z and y, no step changes the newest values. Therefore a pass replaces the previous values in the rim by
/// the newest values, and the snapshot also has the newest values there.
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
  Extents group{};         ///< the number of cells of a group along each axis

  Extents box() const { return {z1 - z0, y1 - y0, x1 - x0}; }
};

/// Writes the snapshots of a pass. All arguments must outlive this object.
class Snapshots {
 public:
  /// Opens the files with the backend that has the name `backend`. Adds the number of bytes that snapshots write to
  /// `bytes`. Throws StorageError.
  Snapshots(const Grid &grid, const Window &window, const Fields &fields, std::vector<Snapshot> snapshots,
            const std::string &backend, StagingSizes sizes, std::atomic<std::uint64_t> &bytes);

  /// Writes the cells of the part `cells` of the planes z0 <= position < z1. All these cells must be in updated rows,
  /// and must hold their values after `done` steps. Does not throw. After a failure of write(), write_behind() and
  /// flush() throw the error.
  void write(long done, long z0, long z1, const Rectangle &cells);

  /// Writes cells that no step changes. If steps update a plane, write_rim() skips the rim in y of this plane, because
  /// write() writes these rows.
  void write_rim(long position, const Rectangle &cells);

  /// Starts to write the dirty pages of the page cache to the devices. During this call, no other thread may call
  /// write(). Throws StorageError.
  void write_behind();

  /// Waits until all bytes of the snapshots are on the devices. Throws StorageError.
  void flush();
  bool empty() const { return snapshots_.empty(); }

  /// Returns, for each box, the CRC32C of its bytes in the file. The result is valid after flush().
  std::vector<std::uint32_t> sums() const;

 private:
  void write_box(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &cells);
  void write_rows(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &rows);
  void add_to_groups(std::uint32_t file, std::size_t ring, long z0, long z1, const Rectangle &cells);
  void write_means(std::uint32_t file, const CoarseBox::CoarseRow &row);

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  std::atomic<std::uint64_t> &bytes_;
  const std::vector<Snapshot> snapshots_;           // snapshot i is file i of the store
  std::multimap<long, std::uint32_t> by_step_;      // numbers of snapshots
  std::vector<std::unique_ptr<CoarseBox>> coarse_;  // for each snapshot, null if cells are written as they are
  std::unique_ptr<Store> store_;
  std::optional<StagingBuffer> staging_;
  FirstFailure failure_;
};

}  // namespace outcrop
