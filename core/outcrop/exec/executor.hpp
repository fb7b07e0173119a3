// Runs the actions of one pass: the only place where planes, threads and files meet.
//
// Actions are issued in the order of the list. Read and Write only hand planes to the pump (its own thread moves them);
// Update and Copy run on the team and wait for nothing but the planes they touch. The scoreboard holds one
// entry per slot:
//
//       Read z ──► slot.reading ──► wait ──► Copy, Update ──► check CRC32C (once)
//       Update ──► CRC32C ──► Write z ──► slot.writing ──► the next Read of that slot starts after it (in the pump)
//                                                     └──► a Copy or Carry into that slot waits for it (here)
//
// Transfers of one slot are chained, each after the one before, so the last ticket stands for all. What one block writes to disk
// and another reads back goes through the same slot where planes have their slots for good, so the chain orders that, too. Blocks
// that shift their planes read nothing of each other but faces, and a face is read once it has been written.
//
// Checksums are taken inside the update, while rows are in a cache (plane_sums.hpp), so a damaged plane is noticed after its
// last row has been updated once: in time, because nothing of a pass counts before its commit.
//
// So reading the next slab, updating this one and writing the last one overlap, and there is no policy here: what
// is read when, and into which ring, was decided by the plan.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "outcrop/exec/action.hpp"
#include "outcrop/exec/plane_sums.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Where the planes of one array lie: files `first_file`, first_file + 1, ... of the store, `planes_per_file` each.
struct PlaneFiles {
  std::uint32_t first_file = 0;
  long planes_per_file = 1;
};

/// The arrays of one pass. `faces_rows` rows of each parity are kept for every plane.
struct PassFiles {
  PlaneFiles source, target, other;
  std::uint32_t faces_file = 0;
  long faces_rows = 0;
};

/// Where the time of a run went, in seconds, and what it moved. All counters run on over passes.
struct ExecutorCounters {
  std::atomic<double> seconds_read_wait{0}, seconds_write_wait{0}, seconds_update{0}, seconds_copy{0},
      seconds_checksum{0}, seconds_commit{0};
};

struct ExecutorOptions {
  Placement placement;  ///< of the threads
  std::array<long, 2> ring_planes{1, 1};
  std::size_t slot_bytes = 0;
  long levels_max = 1;
  Tiling tiling;
  bool checksum = true;         ///< write a CRC32C with every plane and check it on reading
  std::byte *memory = nullptr;  ///< where the window lies, with what it holds; null: the executor takes memory
  bool lock = false;            ///< keep the window from being swapped out
};

class Executor {
 public:
  /// Takes all memory and touches it, unless it is given. `store` may be null when no action transfers planes
  /// (calibration, arrays in memory). Throws InputError when memory cannot be had or locked.
  Executor(const Grid &grid, const ExecutorOptions &options, outcrop_kernel kernel, std::vector<std::byte> scalars,
           Store *store);

  /// Runs one pass. Throws StorageError, CorruptionError or Cancelled, and may not be used again after that.
  void run(const Actions &actions, const PassFiles &files);

  /// Where planes stay in the window over passes: the last, odd level of one is level 0 of the next. Between runs only.
  void swap_rings();

  /// Makes run() throw Cancelled soon; from any thread.
  void cancel();

  const ExecutorCounters &counters() const { return counters_; }
  std::uint64_t cells_updated() const { return traverse_.cells_updated(); }
  std::uint64_t bytes_read() const { return pump_ ? pump_->bytes_read() : 0; }
  std::uint64_t bytes_written() const { return pump_ ? pump_->bytes_written() : 0; }
  std::size_t memory_bytes() const { return window_.size(); }
  const Placement &placement() const { return team_.placement(); }

 private:
  struct Slot {
    long place = -1;  // Window::place of the plane it holds
    Ticket reading = no_ticket, writing = no_ticket;
    bool has_tail = false;  // what is being read ends with the checksum of the source
    Cut face;               // the part of it that is a face
  };

  void perform(const BlockAction &action);
  void perform(const CarryAction &action);
  void perform(const ReadAction &action);
  void perform(const CopyAction &action);
  void perform(const UpdateAction &action);
  void perform(const WriteAction &action);
  void perform(const CommitAction &action);
  void begin_block(const BlockAction &action);
  void wait_for_reads(long z0, long z1);
  void wait_for_writes(long level, long z0, long z1);
  void check_planes(long z0, long z1);
  void copy_rim(long z, const Cut &cut);
  void carry(long z, long level, const Cut &cut) const;
  void finish_record(long z, long level) const;
  bool is_updated(long z) const { return z >= grid_.first_plane() && z < grid_.end_plane(); }
  bool has_tail(Array array, const Cut &cut) const;
  Slot &slot(long level, long z);
  bool holds(const Slot &entry, long z) const { return entry.place == window_.place(z); }
  void submit(Slot &entry, Request request);
  void transfer(bool write, Array array, long level, long z, const Cut &cut);
  Request request(Array array, long level, long z, const Cut &cut) const;
  std::uint32_t sum_face(long level, long z, const Cut &cut) const;
  static std::size_t face_index(long level, long z) { return static_cast<std::size_t>(2 * z + (level & 1)); }
  void check_faces(long z0, long z1);
  [[noreturn]] void report_corruption(Array array, long level, long z) const;

  const Grid grid_;
  const ExecutorOptions options_;
  const std::vector<std::byte> scalars_;
  Window window_;
  Team team_;
  Traverse traverse_;
  std::optional<PlaneSums> source_sums_, target_sums_;
  std::vector<std::uint32_t> expected_;   // checksums that came with the planes of the source
  std::vector<bool> checked_;             // whether they have been compared
  std::vector<std::uint32_t> face_sums_;  // checksums of the faces this pass has written, by plane and parity
  std::vector<Ticket> face_tickets_;      // and when they are on disk
  Store *const store_;
  std::array<std::vector<Slot>, 2> slots_;
  std::unique_ptr<Pump> pump_;  // last: its thread ends before the window goes
  PassFiles files_;
  Cut former_frame_;
  Own own_;
  std::atomic<bool> cancelled_{false};
  ExecutorCounters counters_;
};

}  // namespace outcrop
