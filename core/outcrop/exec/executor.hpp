// Runs the actions of one pass: the only place where planes, threads and files meet.
//
// Actions are issued in the order of the list. Read and Write only hand planes to the pump (its own thread moves them);
// Update and Copy run on the team and wait for nothing but the planes they touch (transfers.hpp):
//
//       Read z ──► slot.reading ──► wait ──► Copy, Update ──► check CRC32C (once)
//       Update ──► CRC32C ──► Write z ──► slot.writing ──► the next Read of that slot starts after it (in the pump)
//                                                     └──► a Copy or Carry into that slot waits for it (here)
//
// An action is about all fields: each has its rings and its arrays (fields.hpp). Checksums are taken inside the update, while
// rows are in a cache (checks.hpp), so a damaged plane is noticed after its last row has been updated once: in time, because
// nothing of a pass counts before its commit.
//
// So reading the next slab, updating this one and writing the last one overlap, and there is no policy here: what
// is read when, and into which rings, was decided by the plan.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "outcrop/exec/action.hpp"
#include "outcrop/exec/checks.hpp"
#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/taps.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/transfers.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Where the time of a run went, in seconds, and what it moved. All counters run on over passes.
struct ExecutorCounters {
  std::atomic<double> seconds_read_wait{0}, seconds_write_wait{0}, seconds_update{0}, seconds_copy{0},
      seconds_checksum{0}, seconds_commit{0};
};

struct ExecutorOptions {
  Placement placement;  ///< of the threads
  std::vector<RingSpec> rings;
  long levels_max = 1;
  Tiling tiling;
  bool checksum = true;         ///< write CRC32C and seal with every plane and check them on reading
  std::byte *memory = nullptr;  ///< where the window lies, with what it holds; null: the executor takes memory
  bool lock = false;            ///< keep the window from being swapped out
};

class Executor {
 public:
  /// Takes all memory and touches it, unless it is given. `store` may be null when no action transfers planes
  /// (calibration, arrays in memory). Throws InputError when memory cannot be had or locked.
  Executor(const Grid &grid, const ExecutorOptions &options, const Fields &fields, Stages stages, Store *store);

  /// Runs one pass of `levels` levels. `scalars` are those of its steps, or of every step. What `requests` ask for is found where
  /// they say or returned. Throws StorageError, CorruptionError or Cancelled, and may not be used again after that.
  TapResults run(const Actions &actions, long levels, const PassFiles &files, std::vector<std::byte> scalars,
                 TapRequests requests = {});

  /// Where planes stay in the window over passes: the last, odd level of one is level 0 of the next. Between runs only.
  void swap_rings();

  /// Makes run() throw Cancelled soon; from any thread.
  void cancel();

  const ExecutorCounters &counters() const { return counters_; }
  std::uint64_t cells_updated() const { return traverse_.cells_updated(); }
  std::uint64_t bytes_read() const { return transfers_.bytes_read(); }
  std::uint64_t bytes_written() const { return transfers_.bytes_written(); }
  std::uint64_t bytes_snapshots() const { return bytes_snapshots_.load(std::memory_order_relaxed); }
  std::size_t memory_bytes() const { return window_.size(); }
  const Placement &placement() const { return team_.placement(); }

 private:
  void perform(const BlockAction &action);
  void perform(const CarryAction &action);
  void perform(const ReadAction &action);
  void perform(const CopyAction &action);
  void perform(const UpdateAction &action);
  void perform(const WriteAction &action);
  void perform(const CommitAction &action);
  void begin_pass(const Actions &actions, long levels, const PassFiles &files);
  void begin_taps(TapRequests requests);
  void begin_block(const BlockAction &action);
  std::vector<Lane> lanes(Array array, long level) const;
  void wait_for_reads(long z0, long z1) { wait_for_reads(z0, z1, z1); }
  void wait_for_reads(long z0, long z1, long z1_statics);
  void check_planes(long z0, long z1);
  void check_faces(long z0, long z1);
  std::array<Cut, 2> rims(long z, const Cut &cut) const;
  void copy_rim(long z, const CopyAction &action);
  void carry(std::size_t ring, long z, const Cut &cut) const;
  std::uint32_t sum_face(std::size_t ring, long z, const Cut &cut) const;
  bool is_updated(long z) const { return z >= grid_.first_plane() && z < grid_.end_plane(); }

  const Grid grid_;
  const Fields fields_;
  Stages stages_;
  Window window_;
  Team team_;
  Traverse traverse_;
  std::optional<Checks> checks_;
  std::optional<Taps> taps_;  // of this pass
  std::atomic<std::uint64_t> bytes_snapshots_{0};
  std::vector<std::uint32_t> face_sums_;  // checksums of the faces this pass has written
  Store *const store_;
  Transfers transfers_;  // last of those with planes: its thread ends before the window goes
  long steps_ = 0;       // of this pass
  Cut former_frame_;
  Own own_;
  std::atomic<bool> cancelled_{false};
  ExecutorCounters counters_;
};

}  // namespace outcrop
