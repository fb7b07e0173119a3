// The transfers of planes between files and rings: their place on disk, their order, and their checksums.
//
// Transfers keeps a state for each slot. The transfers of one slot form a chain in which each starts after the one
// before it, so the last ticket stands for all of them. If one block writes a plane to disk and another block reads it
// back, and every plane has its own slot, then both use the same slot, and the chain orders these transfers, too.
// Blocks that shift their planes read only fringes of each other. A fringe is read after it has been written.
//
// An array of fringes holds, plane by plane, some rows of each ring of the updated fields:
//
//     | plane 0: ring a | ring b | ... | plane 1: ring a | ...        fringe_rows rows each
//
// PlaneSums takes the checksums of planes in parts, while the rows are in a cache. A tile updates some rows of a plane
// at level 1 and, possibly in another tile, at the last level. Directly after an update, the rows that it has read (as
// they came from the disk) and the rows that it has written (as they go back) are still in the first caches. There a
// checksum costs a third of its cost from memory. CRCs are linear: the CRC of the plane is the exclusive or of the CRCs
// of its parts, each shifted by the bytes that follow the part. So the parts may come in any order, from any thread:
//
//     |..part a..|....part b....|..part c..|        CRC = CRC(a) * x^(8|bc|) + CRC(b) * x^(8|c|) + CRC(c)
//
// Checks compares the computed checksums and seals of planes with those that were read behind them, and writes them
// behind the planes that go to disk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// The files of one array: `first_file`, first_file + 1, ... of the store, with `planes_per_file` planes each. `seed`
/// is the seed of the seals (storage/checksums.hpp): for a target the seed to write, for other arrays the seed to
/// expect.
struct PlaneFiles {
  std::uint32_t first_file = 0;
  long planes_per_file = 1;
  std::uint32_t seed = 0;
};

/// The arrays of one pass, in the order of Fields::state() and Fields::statics(). The file of fringes has `fringe_rows`
/// rows for each ring and plane.
struct PassFiles {
  std::vector<PlaneFiles> source, target, statics;
  PlaneFiles other;
  std::uint32_t fringe_file = 0;
  long fringe_rows = 0;
};

/// One array on disk, and the ring with which it exchanges planes.
struct ArrayRing {
  Array array = Array::source;
  std::size_t index = 0;  ///< number among the arrays of its kind; for fringes the place of the ring
  std::size_t ring = 0;
};

class Transfers {
 public:
  /// With a null `store`, nothing is moved and no function waits. All arguments must outlive this.
  Transfers(const Grid &grid, const Window &window, const Fields &fields, Store *store);

  /// Sets the files of the arrays for the next transfers.
  void set_files(const PassFiles &files) { files_ = files; }

  /// Start to move planes z0 <= z < z1 of all pairs: 1 MiB of the first pair, the same planes of the next pair, and so
  /// on. So successive short planes form one transfer, and the planes of all arrays still arrive together.
  void read(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
    transfer(false, pairs, z0, z1, cells);
  }
  void write(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
    transfer(true, pairs, z0, z1, cells);
  }

  /// Waits until all reads into the slot of plane z are complete. Returns true if the checksum was read with the plane,
  /// but only at the first call for a record.
  bool wait_for_read(std::size_t ring, long z);
  void wait_for_write(std::size_t ring, long z);

  /// The fringe rows that have been read into the slot of plane z since the last call; empty if there are none.
  Rectangle take_fringe(std::size_t ring, long z);
  bool has_fringe(std::size_t ring, long z);

  /// The place of the fringe of plane z in a table of all fringes.
  std::size_t fringe_index(std::size_t ring, long z) const;

  /// Whether a part of a plane includes the end of the record.
  bool has_tail(Array array, const Rectangle &cells) const;

  /// The message about a damaged plane. If the plane is `whole`, only its seal is wrong; otherwise its checksum is
  /// wrong.
  std::string damage(const ArrayRing &pair, long z, bool whole) const;

  void swap_rings() { slots_[0].swap(slots_[1]); }
  void drain();
  void cancel();
  std::uint64_t bytes_read() const { return pump_ ? pump_->bytes_read() : 0; }
  std::uint64_t bytes_written() const { return pump_ ? pump_->bytes_written() : 0; }

 private:
  struct SlotState {
    long place = -1;  // Window::place of the plane in the slot
    Ticket reading = no_ticket, writing = no_ticket;
    bool has_tail = false;  // the part that is being read ends with the checksum of the source
    Rectangle fringe{};     // the part of it that is a fringe
  };

  SlotState &slot(std::size_t ring, long z);
  bool holds(const SlotState &state, std::size_t ring, long z) const { return state.place == window_.place(ring, z); }
  void submit(SlotState &state, Request request);
  void transfer(bool write, const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells);
  void transfer(bool write, const ArrayRing &pair, long z, const Rectangle &cells);
  Request request(const ArrayRing &pair, long z, const Rectangle &cells) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  Store *const store_;
  PassFiles files_;
  std::vector<std::vector<SlotState>> slots_;  // by ring
  std::vector<Ticket> fringe_tickets_;         // the writes of the fringes
  std::unique_ptr<Pump> pump_;                 // the last member, so that its thread ends first
};

/// The checksums of all planes of an array, taken in parts.
class PlaneSums {
 public:
  explicit PlaneSums(const Grid &grid);

  /// Resets the sums of all planes.
  void clear();

  /// Adds the part `cells` of plane z. Its cell (0, 0) is at `origin`, and its rows are `pitch_bytes` apart. Every cell
  /// of a plane, padding included, must be added exactly once.
  void add(long z, const std::byte *origin, std::size_t pitch_bytes, const Rectangle &cells);

  /// Whether every byte of plane z has been added.
  bool whole(long z) const { return bytes_[index(z)].load(std::memory_order_relaxed) == grid_.plane_bytes; }

  /// CRC32C of plane z once it is whole.
  std::uint32_t value(long z) const { return sums_[index(z)].load(std::memory_order_relaxed); }

 private:
  static std::size_t index(long z) { return static_cast<std::size_t>(z); }

  const Grid grid_;
  std::vector<std::atomic<std::uint32_t>> sums_;
  std::vector<std::atomic<std::size_t>> bytes_;  // the bytes added so far
  std::vector<std::uint32_t> row_factors_;       // [rows]: the factor of a shift by that many rows
};

/// The checksums and seals of the arrays of a pass.
class Checks {
 public:
  Checks(const Grid &grid, const Window &window, const Fields &fields);

  /// Begins a pass of `steps` steps. `reads_statics` says whether the pass reads the static arrays; otherwise they stay
  /// in memory. `files` has the seeds.
  void begin_pass(long steps, bool reads_statics, const PassFiles &files);

  /// The rings whose checksums the traversal takes: sources before the first level, targets after the last level.
  std::vector<RingSums> source_sums() { return pointers(sources_, reading_); }
  std::vector<RingSums> target_sums() { return pointers(targets_, targets_.size()); }

  /// Stores the checksum and the seal that were read with plane z into a ring.
  void keep(std::size_t ring, long z);

  /// Add cells of the rim, which no update changes.
  void add_to_sources(long z, const Rectangle &cells) { add(sources_, reading_, z, cells); }
  void add_to_targets(long z, const Rectangle &cells) { add(targets_, targets_.size(), z, cells); }

  /// A damaged plane. If it is `whole`, only its seal is wrong: the bytes are those of another plane.
  struct Wrong {
    ArrayRing pair;
    bool whole = false;
  };

  /// Compares checksum and seal of plane z in each array once all its cells have been added; each plane only once.
  std::optional<Wrong> wrong(long z);

  /// Writes checksum and seal behind plane z in its slot if all cells have been added.
  void finish_record(const ArrayRing &target, long z) const;

 private:
  // The bytes behind a plane.
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
  std::deque<Sums> sources_;  // the arrays of the state, then the static ones
  std::deque<Sums> targets_;
  std::size_t reading_ = 0;  // number of sources that this pass reads
};

}  // namespace outcrop
