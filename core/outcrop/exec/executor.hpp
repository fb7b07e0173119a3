// The class Executor runs the actions of passes. Only the class Executor uses the window, the threads and the files
// together.
//
// The executor starts the actions in the order in which the pass lists them. For the actions Read and Write, the
// executor only puts planes into the queue of the I/O thread. The I/O thread transfers the planes (pump.hpp). The team
// of threads runs the actions Update and Copy. An Update or a Copy waits only for the planes that this action uses
// (transfers.hpp). So three things happen at the same time: the next slab is read, the current slab is updated, and the
// previous slab is written:
//
//       Read z ──► slot.reading ──► wait ──► Copy, Update ──► check CRC32C (once)
//       Update ──► CRC32C ──► Write z ──► slot.writing ──► the I/O thread starts the next Read of that slot afterwards
//                                                     └──► the executor waits before it copies to that slot
//
// In a run of several ranks, some Write actions send rows to neighbouring ranks. Some Read actions receive rows from
// neighbouring ranks (faces.hpp). The executor also puts these transfers between ranks into queues. Before the executor
// uses rows of another rank, it waits until these rows are received. Before an update or a copy overwrites rows, the
// executor waits until these rows are sent.
//
// An action applies to all fields. Each field has its own rings and arrays (problem.hpp). The update computes the
// checksum of a plane while the rows of the plane are in a cache (transfers.hpp). Therefore a damaged plane is detected
// only after the update has used all rows of the plane. This is early enough, because the result of a pass becomes
// valid only at the commit.
//
// A rank may begin a pass before all other ranks have committed the previous pass. The first write of the new pass
// overwrites the older generation. The older generation is needed until all ranks have committed the previous pass.
// Therefore the caller can pass a function `before_write`, which waits for the other ranks.
//
// The executor makes no decisions. The plan decides when each plane is read, and which ring the plane goes to.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// The actions of a plan. plan/actions.py has the same list of actions, and explains each action in detail.
// plan/validate.py proves that a list of actions is legal before the executor gets the list.

/// Starts a block. The actions up to the next BlockAction belong to this block. Each slot holds the cells `frame` of
/// its plane in this block. The slot of plane z has the number (z + shift) modulo the number of slots of the ring.
/// While the executor updates the block, the executor computes the checksums of the cells `own`.
struct BlockAction {
  Rectangle frame;
  OwnedCells own;
  long shift = 0;
};

/// Moves the cells `cells` of the planes z0 <= z < z1 inside the slots. Each cell moves from its place in the previous
/// block's frame to its place in this block's frame. The action moves cells only in the rings that hold the values of
/// level `level`.
struct CarryAction {
  long z0, z1;
  Rectangle cells;
  long level;
};

/// Starts to read cells of planes z0 <= z < z1 into rings. The kind of array determines the rings:
///
/// * Cells of `source` go into the rings that hold the values before the first step.
/// * Cells of `other` and `fringes` go into the rings of the first copies of the fields (problem.hpp) if `level` is
///   even, and into the rings of the second copies if `level` is odd.
/// * For `recomputed` and `history`, `level` is the number of the field.
/// * For `faces` and `static_faces`, `level` is the side from which the rows are received.
/// * `stairs` are rows from the neighbour with higher rows. If `level` is 0, these rows go into the rings of the
///   source. Otherwise these rows go into the rings that level `level` updates.
/// * `finished` are rows from the neighbour with lower rows.
struct ReadAction {
  long z0, z1;
  Rectangle cells;
  Array array;
  long level;
};

/// Copies the rim of the planes z0 <= z < z1 from the first copies of the fields to the second copies. The action
/// copies only the part of the rim inside `cells`. The action adds the part of the rim inside `own` to the checksums.
struct CopyAction {
  long z0, z1;
  Rectangle cells, own;
  long recomputed = -1;  ///< number of the recomputed field to which the rim is copied; negative: the second copies
};

/// Updates the levels 1 to `levels` of the slab zeta0 <= zeta < zeta1. Only cells inside `region` are updated.
struct UpdateAction {
  long zeta0, zeta1, levels;
  UpdateRegion region;
};

/// Starts to write cells of the planes z0 <= z < z1. `array` and `level` determine the rings that hold these cells. If
/// the array is `faces` or `static_faces`, `level` is the side to which the rows are sent. Rows of the array `stairs`
/// go to the neighbour with lower rows. Rows of the array `finished` go to the neighbour with higher rows.
struct WriteAction {
  long z0, z1;
  Rectangle cells;
  Array array;
  long level;
};

/// Adds cells of the planes z0 <= z < z1 to the checksums of these planes. Usually an update adds its cells to the
/// checksums. A plan needs this action only for cells that no update of this rank adds. If `array` is `source`, the
/// action adds the cells to the checksums of the source and of the static fields. For the array `source`, the slots
/// must hold the values that were read from disk. If `array` is `target`, the action adds the cells to the checksums of
/// the target. For the array `target`, the slots must hold the values that will be written to disk.
///
/// A block that owns no planes only sends whole planes to neighbouring ranks. In such a block, `array` is `source` or
/// `statics`. The action then compares the checksums of the planes immediately.
struct CheckAction {
  long z0, z1;
  Rectangle cells;
  Array array;
};

/// Waits for all transfers. Then makes the written array durable on its device.
struct CommitAction {};

using Action = std::variant<BlockAction, CarryAction, ReadAction, CopyAction, UpdateAction, WriteAction, CheckAction,
                            CommitAction>;

/// One trip of the window over the grid. A plan has only a few different passes, and the executor runs each of them
/// many times.
struct Pass {
  std::vector<Action> actions;
  long levels = 0;
};

/// The wall-clock time of each phase of the executor, in seconds, summed over all passes.
struct ExecutorCounters {
  std::atomic<double> seconds_read_wait{0}, seconds_write_wait{0}, seconds_face_wait{0}, seconds_update{0},
      seconds_copy{0}, seconds_checksum{0}, seconds_commit{0};
};

struct ExecutorOptions {
  ThreadPlacement placement;
  std::vector<RingSpec> rings;
  long max_levels = 1;
  Tiling tiling;
  /// true: the executor writes a checksum (CRC32C) and a seal with each plane, and tests both after each read of the
  /// plane
  bool checksum = true;
  /// memory of the caller for the window; if null, the executor allocates the memory
  std::byte *memory = nullptr;
  bool lock = false;  ///< true: lock the window in memory, so that the system does not swap it out
  Links links{};      ///< links to the neighbouring ranks; the links must outlive the executor
};

class Executor {
 public:
  /// If the caller provides no memory for the window, the constructor allocates the memory, and touches every page.
  /// `store` can be null if no action transfers planes, as in measurements and in runs with all arrays in memory.
  /// Throws InputError if memory cannot be allocated or locked.
  Executor(const Grid &grid, const ExecutorOptions &options, const Fields &fields, Stages stages, Store *store);

  /// Runs one pass and returns the results of acquisition. run() stores the samples of receivers at the addresses in
  /// `requests`. `scalars` has one set of scalars for each step of the pass, or one set for all steps. `lead_scalars`
  /// has the scalars of the steps of the lead. If `before_write` is not empty, run() calls this function once in the
  /// calling thread, before the first write to a target. The targets change only after the call of `before_write` has
  /// returned. Throws StorageError, CorruptionError, CommunicationError, Cancelled, or the exception of `before_write`.
  /// After an error, the links are cancelled. The executor must not be used any more.
  AcquisitionResults run(const Pass &pass, const PassFiles &files, std::vector<std::byte> scalars,
                         AcquisitionRequests requests = {}, std::vector<std::byte> lead_scalars = {},
                         std::function<void()> before_write = {});

  /// Exchanges the first ring and the second ring. Use swap_rings() for a problem with one field whose planes all stay
  /// in the window. The caller must call swap_rings() after each pass with an odd number of levels. After swap_rings(),
  /// the first ring holds the newest values again. swap_rings() must not be called while run() is active.
  void swap_rings();

  /// Makes run() throw Cancelled soon. Any thread may call cancel().
  void cancel();

  const ExecutorCounters &counters() const { return counters_; }
  std::uint64_t cells_updated() const { return traverse_.cells_updated(); }
  std::uint64_t bytes_read() const { return transfers_.bytes_read(); }
  double seconds_transfer() const { return transfers_.seconds_busy(); }
  std::uint64_t bytes_written() const { return transfers_.bytes_written(); }
  std::uint64_t bytes_sent() const { return transfers_.bytes_sent(); }
  std::uint64_t bytes_received() const { return transfers_.bytes_received(); }
  std::uint64_t bytes_snapshots() const { return bytes_snapshots_.load(std::memory_order_relaxed); }
  std::size_t memory_bytes() const { return window_.size(); }
  const ThreadPlacement &placement() const { return team_.placement(); }
  /// Returns the numbers of those arrays of the state in which the last pass has produced NaN or infinity. The search
  /// considers only cells that were updated, and only a sample of the rows (PlaneSums). Must be called only between
  /// passes.
  std::vector<std::size_t> not_finite() const { return checks_ ? checks_->not_finite() : std::vector<std::size_t>(); }

 private:
  void perform(const BlockAction &action);
  void perform(const CarryAction &action);
  void perform(const ReadAction &action);
  void perform(const CopyAction &action);
  void perform(const UpdateAction &action);
  void perform(const WriteAction &action);
  void perform(const CheckAction &action);
  void perform(const CommitAction &action);
  void begin_pass(const Pass &pass, const PassFiles &files, AcquisitionRequests requests);
  void begin_block(const BlockAction &action);
  std::vector<ArrayRing> array_rings(Array array, long level) const;
  void wait_for_reads(long z0, long z1) { wait_for_reads(z0, z1, z1); }
  void wait_for_reads(long z0, long z1, long z1_statics);
  void wait_for_faces(const CopyAction &action);
  void wait_for_faces(const UpdateAction &action);
  void wait_for_faces(const std::vector<ArrayRing> &pairs, long z0, long z1, const Rectangle &cells);
  void wait_for_writes(std::size_t ring, long z0, long z1);
  void wait_for_history(long z0, long z1, bool is_update);
  void check_planes(long z0, long z1);
  void check_sent(const CheckAction &action);
  void check_fringes(const std::vector<ArrayRing> &pairs, long z0, long z1);
  std::array<Rectangle, 2> rim_of(long z, const Rectangle &cells) const;
  void copy_rows(std::size_t from, std::size_t to, long z, const Rectangle &rows) const;
  void copy_rim(long z, const CopyAction &action);
  void copy_recomputed(const CopyAction &action);
  void carry(std::size_t ring, long z, const Rectangle &cells) const;
  std::uint32_t sum_fringe(std::size_t ring, long z, const Rectangle &cells) const;

  const Grid grid_;
  const Fields fields_;
  Stages stages_;
  Window window_;
  Team team_;
  Traverse traverse_;
  std::optional<Checks> checks_;
  HistorySums history_sums_;
  std::optional<Acquisition> acquisition_;  // the acquisition of the current pass
  std::atomic<std::uint64_t> bytes_snapshots_{0};
  std::vector<std::uint32_t> fringe_sums_;  // checksums of the fringes that the current pass has written
  Store *const store_;
  Transfers transfers_;  // declared after the window, so that the I/O thread ends before the window is destroyed
  long steps_ = 0;       // number of steps of the current pass
  std::function<void()> before_write_;  // empty after the first write of the current pass
  Rectangle former_frame_;
  OwnedCells own_;
  std::atomic<bool> cancelled_{false};
  ExecutorCounters counters_;
};

}  // namespace outcrop
