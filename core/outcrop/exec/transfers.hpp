// Transfers planes between files and rings. The classes of this file compute the places of planes on disk, order the
// transfers, and compute checksums.
//
// Class Transfers also moves faces, which are rows that neighbouring ranks exchange (faces.hpp). The send of a face
// begins only after the reads into its slot are complete. The receive of a face begins only after all earlier transfers
// of its slot are complete. Before a slot is used for another plane, all faces of the current plane must be sent and
// received.
//
// Class Transfers keeps a state for each slot. The transfers of a slot form a chain: each transfer starts when the
// transfer before it is complete. So all transfers of a slot are complete when its last transfer is complete. If every
// plane has its own slot, the chain also orders the transfers of different blocks: a block reads a plane only after the
// earlier block has written this plane. If blocks shift their planes, the blocks use different slots for the same
// plane. A block with shifted planes reads only the fringes of the earlier block. A fringe is read only after it has
// been written.
//
// The file of fringes stores the planes one after another. For each plane, the file first has `fringe_rows` rows of
// each ring of the updated fields. After them, the file has `recomputed_rows` rows of each field that the pass computes
// again:
//
//     | plane 0: ring a | ring b | ... | recomputed field 0 | ... | plane 1: ring a | ...
//
// Class PlaneSums computes the checksums of planes in parts. During the update of level 1, rows that were read from
// disk are added to the checksums of the sources. During the update of the last level, rows that will be written to
// disk are added to the checksums of the targets. During an update, the updated rows are in the first-level or
// second-level cache of the core. If the rows were only in memory, their checksums would take three times as long.
// Threads can add the parts of a plane in any order, because CRCs are linear. The CRC of each part is shifted by the
// number of bytes that follow the part. The exclusive or of the shifted CRCs is the CRC of the plane:
//
//     |..part a..|....part b....|..part c..|        CRC = CRC(a) * x^(8|bc|) + CRC(b) * x^(8|c|) + CRC(c)
//
// In the formula, a multiplication by x^n shifts a CRC by n bits. |bc| is the number of bytes in the parts b and c. The
// sign + means the exclusive or of two CRCs.
//
// A checksum and a seal are stored behind each plane on disk. Class Checks compares the stored checksum and seal of a
// plane with the checksum and the seal that it computes from the plane. Class Checks also stores a checksum and a seal
// behind each plane that is written to disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/exec/faces.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// The files of one array. In the store, the files of the array have the numbers `first_file`, first_file + 1, and so
/// on. Each file has `planes_per_file` planes. `seed` is the seed of the array's seals (storage/checksums.hpp).
struct PlaneFiles {
  std::uint32_t first_file = 0;
  long planes_per_file = 1;
  std::uint32_t seed = 0;
};

/// A file with a state of another run. The file has all rows of all planes, without padding and without checksums of
/// planes. `sum` is the CRC32C of the whole file.
struct HistoryFile {
  std::uint32_t file = 0;
  std::uint32_t sum = 0;
};

/// The arrays of one pass. The arrays of each kind are in the order of Fields::state(), Fields::statics() and
/// Fields::histories(). For each plane, the file of fringes has `fringe_rows` rows of each ring, and
/// `recomputed_rows[i]` rows of field i of Fields::computed().
struct PassFiles {
  std::vector<PlaneFiles> source, target, statics;
  std::vector<HistoryFile> history;
  PlaneFiles other;  ///< the first file of this array is also the file of fringes
  long fringe_rows = 0;
  std::vector<long> recomputed_rows{};
};

/// An array on disk, and the ring whose slots hold the planes of this array in memory.
struct ArrayRing {
  Array array = Array::source;
  /// the number of this array among the arrays of its kind; for fringes, the number of the ring among the rings that
  /// have fringes
  std::size_t index = 0;
  std::size_t ring = 0;
};

class Transfers {
 public:
  /// Prepares an object that transfers planes through `store`, and faces through `links`. If `store` is null, the
  /// functions of this object transfer nothing and do not wait. `max_levels` is the maximum number of levels of a pass.
  /// All arguments and the links must outlive this object.
  Transfers(const Grid &grid, const Window &window, const Fields &fields, Store *store, const Links &links = {},
            long max_levels = 1);

  void set_files(const PassFiles &files) { files_ = files; }

  /// read() and write() start to transfer the planes z0 <= z < z1 of all pairs. read() and write() transfer a group of
  /// planes (about 1 MiB) of the first pair, then the same planes of the second pair, and so on. So one transfer can
  /// contain several short planes, and plane z of every array arrives at about the same time.
  void read(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
    transfer(false, pairs, z0, z1, cells);
  }
  void write(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
    transfer(true, pairs, z0, z1, cells);
  }

  /// send() and receive() start to transfer rows of the planes z0 <= z < z1 of all pairs. send() and receive() first
  /// transfer the rows of plane z0 of each pair, then the rows of the next plane of each pair, and so on. Each message
  /// has the rows of one plane of one pair. send() and receive() throw InputError if the rank has no neighbour on this
  /// side.
  void send(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &rows, std::size_t side) {
    transfer_faces(true, pairs, z0, z1, rows, side);
  }
  void receive(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &rows, std::size_t side) {
    transfer_faces(false, pairs, z0, z1, rows, side);
  }
  bool has_faces() const { return faces_ != nullptr; }

  /// wait_for_received() waits until the rows y0 <= y < y1 of plane z have been received. wait_for_sent() waits until
  /// these rows have been sent. If the slot of plane z holds another plane, both functions return without waiting.
  void wait_for_received(std::size_t ring, long z, long y0, long y1);
  void wait_for_sent(std::size_t ring, long z, long y0, long y1);

  /// Records that the slot of plane z holds plane z from now on. If the slot has held another plane, first waits until
  /// all faces of the other plane are sent and received.
  void begin_plane(std::size_t ring, long z);
  void drain_faces();

  /// Cancels the links to the neighbouring ranks, so that these ranks do not wait for this rank forever.
  void cancel_faces();

  /// Waits until all reads into the slot of plane z are complete. Returns true if the caller must now check the rows
  /// that were read. The caller must check in the first call after a read of the plane's checksum, and in the first
  /// call after a read of a history.
  bool wait_for_read(std::size_t ring, long z);
  void wait_for_write(std::size_t ring, long z);

  /// Returns the rows that the last read of a history has stored in the slot of plane z.
  const Rectangle &history_rows(std::size_t ring, long z) { return slot(ring, z).history; }

  /// Returns the fringe rows that were read into the slot of plane z since the last call of this function.
  Rectangle take_fringe(std::size_t ring, long z);
  bool has_fringe(std::size_t ring, long z);

  /// Returns the index of plane z's fringe in a table of the fringes of all rings and planes.
  std::size_t fringe_index(std::size_t ring, long z) const;

  /// Returns true if the transfer of a part of a plane also transfers the checksum at the end of the plane's record.
  bool has_tail(Array array, const Rectangle &cells, bool write) const;

  /// Returns the error message for a damaged plane. `whole` is the argument `is_whole` of plane_damage().
  std::string damage(const ArrayRing &pair, long z, bool whole) const;
  const std::string &path(const HistoryFile &one) const { return store_->path(one.file); }

  void swap_rings() { slots_[0].swap(slots_[1]); }
  void drain();
  void cancel();
  std::uint64_t bytes_read() const { return pump_ ? pump_->bytes_read() : 0; }
  std::uint64_t bytes_written() const { return pump_ ? pump_->bytes_written() : 0; }
  double seconds_busy() const { return pump_ ? pump_->seconds_busy() : 0; }
  std::uint64_t bytes_sent() const { return faces_ ? faces_->bytes_sent() : 0; }
  std::uint64_t bytes_received() const { return faces_ ? faces_->bytes_received() : 0; }

 private:
  struct SlotState {
    long place = -1;  // the result of Window::place for the plane in the slot
    Ticket reading = no_ticket, writing = no_ticket;
    SlotFaces faces;
    // true if the current read includes the checksum of the plane, or reads a history
    bool has_tail = false;
    Rectangle fringe{};   // the rows of the current read that belong to a fringe
    Rectangle history{};  // rows that were read from a history
  };

  SlotState &slot(std::size_t ring, long z);
  bool holds(const SlotState &state, std::size_t ring, long z) const { return state.place == window_.place(ring, z); }
  // Returns the request that must be complete before the slot may be overwritten.
  static Ticket last_use(const SlotState &state) { return state.writing != no_ticket ? state.writing : state.reading; }
  void submit(SlotState &state, Request request);
  void transfer(bool write, const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells);
  void transfer(bool write, const ArrayRing &pair, long z, const Rectangle &cells);
  void transfer_faces(bool send, const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &rows,
                      std::size_t side);
  Request request(const ArrayRing &pair, long z, const Rectangle &cells) const;
  std::uint64_t fringe_offset(const ArrayRing &pair, long z) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  Store *const store_;
  PassFiles files_;
  std::vector<std::vector<SlotState>> slots_;  // the states of the slots of each ring
  std::vector<Ticket> fringe_tickets_;         // the last request that wrote each fringe
  // `pump_` and `faces_` are the last members of the class, so that their threads end before the other members are
  // destroyed.
  std::unique_ptr<Pump> pump_;
  std::unique_ptr<Faces> faces_;
};

/// Computes the checksums of all planes of an array, part by part. Also searches a sample of the rows for NaN and
/// infinity. Updates spread NaN and infinity to neighbouring cells, so NaN and infinity soon reach a searched row.
class PlaneSums {
 public:
  /// The maximum distance between two rows that are searched for NaN and infinity. Large grids use this maximum. In a
  /// pass, the search takes about 1/50 of the time that the updates of one step take.
  static constexpr long max_rows_between = 64;
  /// In grids with at most this number of rows, all rows are searched.
  static constexpr long min_rows_searched = 1024;

  explicit PlaneSums(const Grid &grid);

  void clear();

  /// Adds the part `cells` of plane z. `origin` is the address of cell (0, 0) of the plane, and rows are `pitch_bytes`
  /// apart. The callers must add every cell of a plane exactly once, including the padding of rows. The callers must
  /// not add the zeros that follow the last row on disk. Any thread may call add().
  void add(long z, const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells);

  /// Searches the rows of the part `cells` of plane z. The arguments have the same meaning as in add().
  void search(long z, const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells);

  /// Returns whether every byte of plane z has been added.
  bool whole(long z) const { return bytes_[index(z)].load(std::memory_order_relaxed) == grid_.rows_bytes(); }

  /// Returns true if no searched row has NaN or infinity. Row y of plane z is searched if z + y is a multiple of the
  /// distance between searched rows. Padding is not searched.
  bool is_finite() const;

  /// Returns the CRC32C of plane z as it is on disk. The result is valid if whole(z) is true.
  std::uint32_t value(long z) const { return sums_[index(z)].load(std::memory_order_relaxed) ^ zeros_; }

 private:
  static std::size_t index(long z) { return static_cast<std::size_t>(z); }

  const Grid grid_;
  std::vector<std::atomic<std::uint32_t>> sums_;
  std::vector<std::atomic<std::size_t>> bytes_;  // number of bytes of each plane that have been added
  // factor i shifts the CRC of a part by i rows and by the zeros behind the last row
  std::vector<std::uint32_t> row_factors_;
  std::uint32_t zeros_;                        // the CRC of the zeros behind the last row
  long rows_between_;                          // distance between the rows that are searched for NaN and infinity
  std::vector<std::atomic<bool>> not_finite_;  // for each plane: a searched row has NaN or infinity
};

/// Computes the checksums of the states of a history that a pass reads. A state has one checksum for all its bytes.
class HistorySums {
 public:
  void begin_pass(const std::vector<HistoryFile> &files);

  /// Adds the rows y0 <= y < y1 of plane z to the checksum of state `index`. `rows` is the address of cell 0 of row y0.
  /// In memory, rows are `pitch_bytes` apart. The callers must add every row of a state exactly once. Any thread may
  /// call add().
  void add(const Grid &grid, std::size_t index, long z, long y0, long y1, const std::byte *rows,
           std::size_t pitch_bytes);

  /// Compares each state with its checksum. Returns the file of the first state whose checksum is wrong, or nothing if
  /// all checksums are right. All rows of all states must have been added before this call.
  std::optional<HistoryFile> wrong() const;

 private:
  std::vector<HistoryFile> files_;
  std::deque<std::atomic<std::uint32_t>> sums_;
};

/// The checksums and seals of the arrays of a pass.
class Checks {
 public:
  Checks(const Grid &grid, const Window &window, const Fields &fields);

  /// Begins a pass of `steps` steps. If `reads_statics` is false, the static arrays stay in memory. `files` has the
  /// seeds of the seals.
  void begin_pass(long steps, bool reads_statics, const PassFiles &files);

  /// source_sums() and target_sums() return the rings whose planes need checksums. The traversal computes these
  /// checksums (Traverse::sum_into()). The sources are the arrays that the pass reads: the updated fields, and also the
  /// static fields if the static fields do not stay in memory. Before level 1 updates a cell, the cell is added to the
  /// checksums of the sources. The targets are the arrays that the pass writes. After the last level has updated a
  /// cell, the cell is added to the checksums of the targets.
  std::vector<RingSums> source_sums() { return pointers(sources_, reading_); }
  std::vector<RingSums> target_sums() { return pointers(targets_, targets_.size()); }

  /// Keeps the checksum and the seal of plane z. The checksum and the seal were read into a slot of the ring together
  /// with the plane.
  void keep(std::size_t ring, long z);

  /// add_to_sources() and add_to_targets() add cells of the rim to the checksums. No update changes the cells of the
  /// rim, so the traversal does not add these cells.
  void add_to_sources(long z, const Rectangle &cells) { add(sources_, reading_, z, cells); }
  void add_to_targets(long z, const Rectangle &cells) { add(targets_, targets_.size(), z, cells); }

  /// Describes a damaged plane. If `whole` is true, the bytes match their checksum, but the seal is wrong. A wrong seal
  /// with a right checksum means that the bytes belong to another plane.
  struct Wrong {
    ArrayRing pair;
    bool whole = false;
  };

  enum class Verdict : std::uint8_t { valid, damaged, displaced };

  /// Compares the computed checksum and seal of plane z with the checksum and the seal that were read together with the
  /// plane (keep()). The frame must be the whole plane. If only the seal is wrong, the verdict is `displaced`: the
  /// bytes belong to another plane.
  Verdict verdict(const ArrayRing &source, long z) const;

  /// Checks plane z of each array whose checksum includes all cells of the plane. Compares the computed checksum and
  /// seal with the stored checksum and seal. Each plane of an array is checked only once. Returns the damaged plane, if
  /// there is one.
  std::optional<Wrong> wrong(long z);

  /// Returns the numbers of those written arrays that have NaN or infinity in a searched row.
  std::vector<std::size_t> not_finite() const;

  /// Writes the checksum and the seal of plane z behind the plane, in its slot. Does nothing if the checksum does not
  /// include all cells of the plane yet.
  void finish_record(const ArrayRing &target, long z) const;

 private:
  // The checksum and the seal that are stored behind a plane.
  struct Tail {
    std::uint32_t crc = 0, seal = 0;
  };
  struct Sums {
    ArrayRing pair;
    PlaneSums sums;
    std::vector<Tail> expected;
    std::vector<bool> checked;
    std::uint32_t seed = 0;
  };

  void add(std::deque<Sums> &arrays, std::size_t count, long z, const Rectangle &cells);
  std::vector<RingSums> pointers(std::deque<Sums> &arrays, std::size_t count) const;
  std::uint32_t seal(const Sums &array, long z) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  // the checksums of the arrays of the state, followed by the checksums of the static arrays
  std::deque<Sums> sources_;
  std::deque<Sums> targets_;
  std::size_t reading_ = 0;  // number of elements of `sources_` that the current pass reads
};

}  // namespace outcrop
