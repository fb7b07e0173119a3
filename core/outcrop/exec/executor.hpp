// Runs the actions of one pass: the only place where planes, threads and files meet.
//
// Actions are issued in the order of the list. Read and Write only hand planes to the pump, whose own thread moves them.
// Update and Copy run on the team and wait for nothing but the planes they touch (transfers.hpp):
//
//       Read z ──► slot.reading ──► wait ──► Copy, Update ──► check CRC32C (once)
//       Update ──► CRC32C ──► Write z ──► slot.writing ──► the next Read of that slot starts after it (in the pump)
//                                                     └──► a Copy or Carry into that slot waits for it (here)
//
// An action is about all fields: each has its rings and its arrays (problem.hpp). Checksums are taken inside the update,
// while rows are in a cache (transfers.hpp), so a damaged plane is noticed after its last row has been updated once. That is
// in time, because nothing of a pass counts before its commit.
//
// So reading the next slab, updating this one and writing the last one overlap. There is no policy here: the plan has decided
// what is read when, and into which rings.
#pragma once

#include <array>
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

// The actions of a plan. Python's plan/actions.py has the same list and the full meaning of each action. plan/validate.py
// proves a list legal before it comes here.

/// Starts a block. The actions that follow apply to it: slots hold the cells `frame` of their planes, plane z in slot
/// (z + shift) mod ring, and `own` are the cells whose checksums the block takes.
struct BlockAction {
  Rectangle frame;
  OwnedCells own;
  long shift = 0;
};

/// Moves cells of planes z0 <= z < z1 in the rings of `level` from their place in the former frame to that in this one.
struct CarryAction {
  long z0, z1;
  Rectangle cells;
  long level;
};

/// Starts reading cells of planes z0 <= z < z1 into the rings of `level`: from `source` into the rings of the values before
/// the first step, from `other` and `fringes` into first copies (even level) or second copies (odd level).
struct ReadAction {
  long z0, z1;
  Rectangle cells;
  Array array;
  long level;
};

/// Copies those of the cells of planes z0 <= z < z1 that are rim from first to second copies, and takes the checksums of
/// `own` cells.
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

/// One trip over the grid, which updates `levels` levels. A plan's passes are few, and each runs many times.
struct Pass {
  std::vector<Action> actions;
  long levels = 0;
};

/// Wall-clock seconds by phase, summed over all passes.
struct ExecutorCounters {
  std::atomic<double> seconds_read_wait{0}, seconds_write_wait{0}, seconds_update{0}, seconds_copy{0},
      seconds_checksum{0}, seconds_commit{0};
};

struct ExecutorOptions {
  ThreadPlacement placement;
  std::vector<RingSpec> rings;
  long max_levels = 1;
  Tiling tiling;
  bool checksum = true;         ///< write CRC32C and seal with every plane and check them on reading
  std::byte *memory = nullptr;  ///< the window's memory with what it holds; null: the executor allocates it
  bool lock = false;            ///< keep the window from being swapped out
};

class Executor {
 public:
  /// Takes all memory and touches it, unless it is given. `store` may be null if no action transfers planes (calibration,
  /// arrays in memory). Throws InputError if memory cannot be allocated or locked.
  Executor(const Grid &grid, const ExecutorOptions &options, const Fields &fields, Stages stages, Store *store);

  /// Runs one pass. `scalars` are those of its steps, or one set for every step. Samples go where `requests` say, other
  /// results are returned. Throws StorageError, CorruptionError or Cancelled, and may not be used again after that.
  AcquisitionResults run(const Pass &pass, const PassFiles &files, std::vector<std::byte> scalars,
                         AcquisitionRequests requests = {});

  /// Exchanges the rings of a field of two copies whose planes stay in the window: after an odd number of levels the newest
  /// values of one pass are level 0 of the next. Between runs only.
  void swap_rings();

  /// Makes run() throw Cancelled soon; from any thread.
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
  void check_faces(long z0, long z1);
  std::array<Rectangle, 2> rims(long z, const Rectangle &cells) const;
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
  std::vector<std::uint32_t> fringe_sums_;  // checksums of the fringes this pass has written
  Store *const store_;
  Transfers transfers_;  // last of those with planes: its thread ends before the window goes
  long steps_ = 0;       // of this pass
  Rectangle former_frame_;
  OwnedCells own_;
  std::atomic<bool> cancelled_{false};
  ExecutorCounters counters_;
};

}  // namespace outcrop
