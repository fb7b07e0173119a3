// Runs the actions of one pass. This is the only place where planes, threads and files meet.
//
// The executor issues the actions in the order of the list. Read and Write only queue planes for the I/O thread, which
// moves them (pump.hpp). Update and Copy run on the team, and wait only for the planes that they use (transfers.hpp).
// So reading the next slab, updating this one and writing the last one overlap:
//
//       Read z ──► slot.reading ──► wait ──► Copy, Update ──► check CRC32C (once)
//       Update ──► CRC32C ──► Write z ──► slot.writing ──► the I/O thread starts the next Read of that slot after it
//                                                     └──► the executor waits for it before it copies to that slot
//
// An action applies to all fields. Each field has its rings and its arrays (problem.hpp). The update computes checksums
// while rows are in a cache (transfers.hpp), so it detects a damaged plane only after it has updated all its rows. That
// is early enough, because the result of a pass becomes valid only with its commit.
//
// The executor decides nothing. The plan says which planes are read when, and into which rings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "outcrop/exec/acquisition.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/transfers.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

// The actions of a plan. plan/actions.py has the same list with the full meaning of each action. plan/validate.py
// proves that a list is legal before it comes here.

/// Starts a block; the following actions apply to it. Slots hold the cells `frame` of their planes, and plane z is in
/// slot (z + shift) mod ring. The block takes the checksums of the cells `own`.
struct BlockAction {
  Rectangle frame;
  OwnedCells own;
  long shift = 0;
};

/// Moves cells of planes z0 <= z < z1 in the rings of `level` from their place in the former frame to the place in this
/// one.
struct CarryAction {
  long z0, z1;
  Rectangle cells;
  long level;
};

/// Starts reading cells of planes z0 <= z < z1 into the rings of `level`: from `source` into the rings of the values
/// before the first step, from `other` and `fringes` into first copies (even level) or second copies (odd level).
struct ReadAction {
  long z0, z1;
  Rectangle cells;
  Array array;
  long level;
};

/// Copies the rim within `cells` of planes z0 <= z < z1 from the first to the second copies, and takes the checksums of
/// the cells `own`.
struct CopyAction {
  long z0, z1;
  Rectangle cells, own;
};

/// Updates levels 1 .. levels of the slab zeta0 <= zeta < zeta1 inside `region`.
struct UpdateAction {
  long zeta0, zeta1, levels;
  UpdateRegion region;
};

/// Starts writing cells of planes z0 <= z < z1 from the rings of `level`.
struct WriteAction {
  long z0, z1;
  Rectangle cells;
  Array array;
  long level;
};

/// Waits for all transfers and flushes the target to its device.
struct CommitAction {};

using Action = std::variant<BlockAction, CarryAction, ReadAction, CopyAction, UpdateAction, WriteAction, CommitAction>;

/// One trip over the grid, which updates `levels` levels. A plan has few different passes, and each of them runs many
/// times.
struct Pass {
  std::vector<Action> actions;
  long levels = 0;
};

/// Wall-clock seconds of each phase, summed over all passes.
struct ExecutorCounters {
  std::atomic<double> seconds_read_wait{0}, seconds_write_wait{0}, seconds_update{0}, seconds_copy{0},
      seconds_checksum{0}, seconds_commit{0};
};

struct ExecutorOptions {
  ThreadPlacement placement;
  std::vector<RingSpec> rings;
  long max_levels = 1;
  Tiling tiling;
  bool checksum = true;         ///< write CRC32C and seal with each plane, and check them after reading
  std::byte *memory = nullptr;  ///< the window's memory with its content; null: the executor allocates it
  bool lock = false;            ///< lock the window in memory, so that it is never swapped out
};

class Executor {
 public:
  /// Allocates all memory and touches it, unless the caller gives it. `store` may be null if no action transfers planes
  /// (calibration, arrays in memory). Throws InputError if memory cannot be allocated or locked.
  Executor(const Grid &grid, const ExecutorOptions &options, const Fields &fields, Stages stages, Store *store);

  /// Runs one pass. `scalars` has one set of scalars for each step of the pass, or one set for all steps. Samples are
  /// stored where `requests` say; the other results are returned. Throws StorageError, CorruptionError or Cancelled.
  /// The executor must not be used after an error.
  AcquisitionResults run(const Pass &pass, const PassFiles &files, std::vector<std::byte> scalars,
                         AcquisitionRequests requests = {});

  /// Exchanges the two rings of a field whose planes stay in the window. After an odd number of levels the newest
  /// values of one pass then are level 0 of the next. Only between runs.
  void swap_rings();

  /// Makes run() throw Cancelled soon. Any thread may call this.
  void cancel();

  const ExecutorCounters &counters() const { return counters_; }
  std::uint64_t cells_updated() const { return traverse_.cells_updated(); }
  std::uint64_t bytes_read() const { return transfers_.bytes_read(); }
  std::uint64_t bytes_written() const { return transfers_.bytes_written(); }
  std::uint64_t bytes_snapshots() const { return bytes_snapshots_.load(std::memory_order_relaxed); }
  std::size_t memory_bytes() const { return window_.size(); }
  const ThreadPlacement &placement() const { return team_.placement(); }

 private:
  void perform(const BlockAction &action);
  void perform(const CarryAction &action);
  void perform(const ReadAction &action);
  void perform(const CopyAction &action);
  void perform(const UpdateAction &action);
  void perform(const WriteAction &action);
  void perform(const CommitAction &action);
  void begin_pass(const Pass &pass, const PassFiles &files, AcquisitionRequests requests);
  void begin_block(const BlockAction &action);
  std::vector<ArrayRing> array_rings(Array array, long level) const;
  void wait_for_reads(long z0, long z1) { wait_for_reads(z0, z1, z1); }
  void wait_for_reads(long z0, long z1, long z1_statics);
  void check_planes(long z0, long z1);
  void check_fringes(long z0, long z1);
  void copy_rim(long z, const CopyAction &action);
  void carry(std::size_t ring, long z, const Rectangle &cells) const;
  std::uint32_t sum_fringe(std::size_t ring, long z, const Rectangle &cells) const;

  const Grid grid_;
  const Fields fields_;
  Stages stages_;
  Window window_;
  Team team_;
  Traverse traverse_;
  std::optional<Checks> checks_;
  std::optional<Acquisition> acquisition_;  // of this pass
  std::atomic<std::uint64_t> bytes_snapshots_{0};
  std::vector<std::uint32_t> fringe_sums_;  // checksums of the fringes that this pass has written
  Store *const store_;
  Transfers transfers_;  // after the window, so that the I/O thread ends before the window is destroyed
  long steps_ = 0;       // number of steps of this pass
  Rectangle former_frame_;
  OwnedCells own_;
  std::atomic<bool> cancelled_{false};
  ExecutorCounters counters_;
};

}  // namespace outcrop
