// Planes on their way between files and rings: where they lie on disk, what is on its way, and their checksums.
//
// Transfers keeps a state for each slot. Transfers of one slot are chained, each after the one before it, so the last ticket
// stands for all of them. What one block writes to disk and another block reads back uses the same slot, if every plane has
// its own slot, so the chain orders these transfers, too. Blocks that shift their planes read only fringes of each other, and
// a fringe is read after it has been written.
//
// An array of fringes holds, plane by plane, some rows of each ring of the fields that are updated:
//
//     | plane 0: ring a | ring b | ... | plane 1: ring a | ...        fringe_rows rows each
//
// PlaneSums takes the checksums of planes in parts while the rows are in a cache. A tile updates some rows of a plane at
// level 1 and, maybe in another tile, at the last level. Directly after an update, the rows it has read (as they came from
// the disk) and the rows it has written (as they go back) are still in the first caches, where a checksum costs a third of
// what it costs from memory. CRCs are linear: the CRC of the plane is the exclusive or of the CRCs of its parts, each
// shifted by the bytes that follow the part. So the parts may come in any order, from any thread:
//
//     |..part a..|....part b....|..part c..|        CRC = CRC(a) * x^(8|bc|) + CRC(b) * x^(8|c|) + CRC(c)
//
// Checks compares the sums of the planes that were read with the checksums and seals that came with them, and puts those of
// the planes that are written behind them.
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

/// The files of one array: `first_file`, first_file + 1, ... of the store, with `planes_per_file` planes each. `seed` is that
/// of their seals (storage/checksums.hpp): for a target the seed to write, for other arrays the seed to expect.
struct PlaneFiles {
  std::uint32_t first_file = 0;
  long planes_per_file = 1;
  std::uint32_t seed = 0;
};

/// The arrays of one pass, in the order of Fields::state() and Fields::statics(). The file of fringes has `fringe_rows` rows for
/// each ring and plane.
struct PassFiles {
  std::vector<PlaneFiles> source, target, statics;
  PlaneFiles other;
  std::uint32_t fringe_file = 0;
  long fringe_rows = 0;
};

/// One array on disk and the ring from or to which its planes move.
struct ArrayRing {
  Array array = Array::source;
  std::size_t index = 0;  ///< among the arrays of its kind; for fringes the place of the ring
  std::size_t ring = 0;
};

class Transfers {
 public:
  /// With a null `store` nothing is moved and nothing waited for. All arguments must outlive this.
  Transfers(const Grid &grid, const Window &window, const Fields &fields, Store *store);

  /// Sets where arrays lie from now on.
  void set_files(const PassFiles &files) { files_ = files; }

  /// Begins to move planes z0 <= z < z1 of all pairs: 1 MiB of the first pair, the same planes of the next, and so on. So
  /// short successive planes are moved as one, and all arrays still arrive together.
  void read(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
    transfer(false, pairs, z0, z1, cells);
  }
  void write(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells) {
    transfer(true, pairs, z0, z1, cells);
  }

  /// Waits until all reads into the slot of plane z are complete; true once for each record whose checksum came along.
  bool wait_for_read(std::size_t ring, long z);
  void wait_for_write(std::size_t ring, long z);

  /// The fringe rows that have been read into the slot of plane z since the last call; empty if there are none.
  Rectangle take_fringe(std::size_t ring, long z);
  bool has_fringe(std::size_t ring, long z) const;

  /// The place of plane z among all fringes.
  std::size_t fringe_index(std::size_t ring, long z) const;

  /// Whether a part of a plane ends with its record.
  bool has_tail(Array array, const Rectangle &cells) const;

  /// The message about a damaged plane: its checksum is wrong, or, if the plane is `whole`, only its seal.
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
    bool has_tail = false;  // what is being read ends with the checksum of the source
    Rectangle fringe{};     // the part of it that is a fringe
  };

  SlotState &slot(std::size_t ring, long z);
  const SlotState &slot(std::size_t ring, long z) const;
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
  std::vector<Ticket> fringe_tickets_;         // when fringes are on disk
  std::unique_ptr<Pump> pump_;                 // last: its thread ends first
};

/// The checksums of all planes of an array, taken in parts.
class PlaneSums {
 public:
  explicit PlaneSums(const Grid &grid);

  /// Sets all sums to those of no bytes.
  void clear();

  /// Adds the part `cells` of plane z, whose cell (0, 0) lies at `origin` and whose rows are `pitch_bytes` apart. Every cell
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
  std::vector<std::atomic<std::size_t>> bytes_;  // added so far
  std::vector<std::uint32_t> row_factors_;       // [rows]: the factor of a shift by that many rows
};

/// The checksums and seals of the arrays of a pass.
class Checks {
 public:
  Checks(const Grid &grid, const Window &window, const Fields &fields);

  /// Begins a pass of `steps` steps. `reads_statics`: it reads the arrays that never change, instead of finding them in
  /// memory. `files` have the seeds.
  void begin_pass(long steps, bool reads_statics, const PassFiles &files);

  /// The rings of which the traversal takes checksums before the first and after the last level.
  std::vector<RingSums> source_sums();
  std::vector<RingSums> target_sums();

  /// Keeps the checksum and the seal that have come with plane z into a ring.
  void keep(std::size_t ring, long z);

  /// Adds cells that no update touches, before and after they are brought to their last level.
  void add_to_sources(long z, const Rectangle &cells) { add(sources_, reading_, z, cells); }
  void add_to_targets(long z, const Rectangle &cells) { add(targets_, targets_.size(), z, cells); }

  /// A plane whose checksum is wrong, or, if it is `whole`, whose seal is that of another plane.
  struct Wrong {
    ArrayRing pair;
    bool whole = false;
  };

  /// Compares checksums and seals of plane z, once, in those arrays of which all cells have been added.
  std::optional<Wrong> wrong(long z);

  /// Puts checksum and seal behind plane z in a slot, if all cells have been added.
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
  std::deque<Sums> sources_;  // the state's arrays, then those that never change
  std::deque<Sums> targets_;
  std::size_t reading_ = 0;  // sources that are read in this pass
};

}  // namespace outcrop
