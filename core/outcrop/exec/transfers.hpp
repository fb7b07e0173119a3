// Planes on their way between rings and files: the scoreboard of slots, and where on disk a plane lies.
//
// The scoreboard holds one entry per slot. Transfers of one slot are chained, each after the one before, so the last ticket
// stands for all. What one block writes to disk and another reads back goes through the same slot where planes have their slots
// for good, so the chain orders that, too. Blocks that shift their planes read nothing of each other but faces, and a face is
// read once it has been written.
//
// An array of faces holds, plane by plane, some rows of each ring of the fields that are updated:
//
//     | plane 0: ring a | ring b | ... | plane 1: ring a | ...        faces_rows rows each
//
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/exec/action.hpp"
#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Where the planes of one array lie: files `first_file`, first_file + 1, ... of the store, `planes_per_file` each. `seed` is that
/// of their seals (storage/seal.hpp): of a target as it is written, of others as they are expected.
struct PlaneFiles {
  std::uint32_t first_file = 0;
  long planes_per_file = 1;
  std::uint32_t seed = 0;
};

/// The arrays of one pass, in the order of Fields::state() and Fields::statics(). `faces_rows` rows of each ring are kept for
/// every plane.
struct PassFiles {
  std::vector<PlaneFiles> source, target, statics;
  PlaneFiles other;
  std::uint32_t faces_file = 0;
  long faces_rows = 0;
};

/// One array on disk and the ring from or to which its planes move.
struct Lane {
  Array array = Array::source;
  std::size_t index = 0;  ///< among the arrays of its kind; of faces the place of the ring
  std::size_t ring = 0;
};

/// Where the planes of a lane lie, which is not one of faces.
const PlaneFiles &files_of(const PassFiles &files, const Lane &lane);

class Transfers {
 public:
  /// `store` may be null: then nothing is moved and nothing waited for. All arguments must outlive this.
  Transfers(const Grid &grid, const Window &window, const Fields &fields, Store *store);

  /// Where arrays lie from now on.
  void set_files(const PassFiles &files) { files_ = files; }

  /// Begins to move planes z0 <= z < z1 of all lanes: some of one, the same of the next, and so on, so that short planes
  /// that follow each other are moved as one and all lanes still come together.
  void read(const std::vector<Lane> &lanes, long z0, long z1, const Cut &cut) { transfer(false, lanes, z0, z1, cut); }
  void write(const std::vector<Lane> &lanes, long z0, long z1, const Cut &cut) { transfer(true, lanes, z0, z1, cut); }

  /// Waits until what is being read into the slot of plane z has come; true once for each record whose checksum came along.
  bool wait_for_read(std::size_t ring, long z);
  void wait_for_write(std::size_t ring, long z);

  /// Face rows that have come into the slot of plane z and that nobody has looked at yet; empty when there are none.
  Cut take_face(std::size_t ring, long z);
  bool has_face(std::size_t ring, long z) const;

  /// Place of plane z among all faces.
  std::size_t face_index(std::size_t ring, long z) const;

  /// Whether a part of a plane ends with its record.
  bool has_tail(Array array, const Cut &cut) const;

  /// What is wrong with a plane that has come, in words: its checksum, or only its seal when it `is_whole`.
  std::string damage(const Lane &lane, long z, bool is_whole) const;

  void swap_rings() { slots_[0].swap(slots_[1]); }
  void drain();
  void cancel();
  std::uint64_t bytes_read() const { return pump_ ? pump_->bytes_read() : 0; }
  std::uint64_t bytes_written() const { return pump_ ? pump_->bytes_written() : 0; }

 private:
  struct Slot {
    long place = -1;  // Window::place of the plane it holds
    Ticket reading = no_ticket, writing = no_ticket;
    bool has_tail = false;  // what is being read ends with the checksum of the source
    Cut face{};             // the part of it that is a face
  };

  Slot &slot(std::size_t ring, long z);
  const Slot &slot(std::size_t ring, long z) const;
  bool holds(const Slot &entry, std::size_t ring, long z) const { return entry.place == window_.place(ring, z); }
  void submit(Slot &entry, Request request);
  void transfer(bool write, const std::vector<Lane> &lanes, long z0, long z1, const Cut &cut);
  void transfer(bool write, const Lane &lane, long z, const Cut &cut);
  Request request(const Lane &lane, long z, const Cut &cut) const;

  const Grid &grid_;
  const Window &window_;
  const Fields &fields_;
  Store *const store_;
  PassFiles files_;
  std::vector<std::vector<Slot>> slots_;  // by ring
  std::vector<Ticket> face_tickets_;      // when faces are on disk
  std::unique_ptr<Pump> pump_;            // last: its thread ends first
};

}  // namespace outcrop
