// Updates one slab of the window: runs the tiles of tiles.hpp over a range of the skewed coordinate.
//
// A level is a stage of a step (fields.hpp). zeta = z + skew*(level - 1), z being a position (grid.hpp); a slab is
// zeta0 <= zeta < zeta1 and holds all levels. Inside a tile zeta ascends, `planes` at a time, and for each of these groups the
// levels ascend, so a plane is still in the cache when the next level needs it:
//
//     level 3   z-2r z-2r+1        each call updates `planes` neighbouring planes, so that the kernel can
//     level 2        z-r  z-r+1    keep the planes between them in registers
//     level 1             z   z+1
//
// On several NUMA nodes threads take the tiles of the rows first that their own node owns (ownership.hpp, node_queues.hpp),
// then they help the others. Which rows these are depends on the frame, so there is a schedule for each frame. Bands are all
// taken from one queue; how many chunks there are depends on the slab, so there is one for each thickness.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "outcrop/exec/fields.hpp"
#include "outcrop/exec/node_queues.hpp"
#include "outcrop/exec/plane_sums.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/tiles.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// How a slab is cut: D of the diamonds, or 0 for plain sweeps in blocks of `sweep_rows` rows. Of few rows (`chunk` > 0) bands of
/// 2 D levels, or plain sweeps, in chunks of so many zetas.
struct Tiling {
  long diamond = 0;
  long sweep_rows = 16;
  long planes = 2;  ///< planes a kernel call updates, 1 .. max_planes
  long chunk = 0;
  static constexpr long max_planes = 4;
};

/// A bound that moves with the level.
struct Bound {
  long at_zero = 0, slope = 0;

  long at(long level) const { return at_zero + slope * level; }
};

/// What a block updates at each level, along each axis: low <= z < high and so on, inside the grid. The default is everything.
/// x bounds count cells and are multiples of 64 bytes.
struct Region {
  static constexpr long far = 1L << 40;
  Bound z_low{-far, 0}, z_high{far, 0}, y_low{-far, 0}, y_high{far, 0}, x_low{-far, 0}, x_high{far, 0};
};

struct Slab {
  long zeta0 = 0, zeta1 = 0;
  long levels = 0;
  Region region{};
};

/// Cells of the source that a block accounts for: blocks may read and update more than that, but each cell is one block's own.
struct Own {
  long z0 = -Region::far, z1 = Region::far;
  Cut cut{-Region::far, Region::far, -Region::far, Region::far};
};

/// Checksums of the planes of a ring.
struct RingSums {
  std::size_t ring = 0;
  PlaneSums *sums = nullptr;
};

class Taps;

class Traverse {
 public:
  /// Prepares tiles for up to `levels_max` levels. `stages` must outlive this.
  Traverse(Team &team, const Grid &grid, const Window &window, const Stages &stages, Tiling tiling, long levels_max);

  /// Cuts `levels` <= `levels_max` levels into tiles; call between passes only.
  void set_levels(long levels);

  /// Updates every cell of the slab; stops early, leaving the slab torn, once `cancelled` is set.
  void update(const Slab &slab, const std::atomic<bool> &cancelled);

  /// From now on, take checksums of the cells that level 1 finds, if they are `own`, and of those that the last level leaves.
  void sum_into(std::vector<RingSums> sources, std::vector<RingSums> targets) {
    sources_ = std::move(sources);
    targets_ = std::move(targets);
  }
  void set_own(const Own &own) { own_ = own; }

  /// From now on, show what is updated to `taps`; null: to nobody.
  void set_taps(Taps *taps) { taps_ = taps; }

  /// Cells updated since construction.
  std::uint64_t cells_updated() const { return cells_updated_.load(std::memory_order_relaxed); }

 private:
  // The tiles in the order in which they are taken, and who takes which first.
  struct Schedule {
    Cut frame;
    long chunks;
    std::vector<Tile> tiles;
    NodeQueues queues;
  };

  Chunks chunks_of(const Slab &slab) const;
  std::vector<Tile> make_tiles(const Chunks &chunks, unsigned threads, const std::vector<long> &begin) const;
  Schedule make_schedule(const Chunks &chunks) const;
  Schedule &schedule(const Slab &slab);
  void update_tile(const Tile &tile, const Slab &slab, long down);
  void update_planes(long level, long z0, long z1, const Cut &cut);
  void update_plane(long level, long position, const Cut &cut);
  void call(long level, long z0, long z1, const Cut &cut, const void *const *sources) const;
  void sum_planes(const std::vector<RingSums> &sums, long z0, long z1, const Cut &cut) const;
  void await(const Tile &tile, std::uint32_t epoch, const std::atomic<bool> &cancelled) const;

  Team &team_;
  const Grid grid_;
  const Window &window_;
  const Stages &stages_;
  const Tiling tiling_;
  long levels_;
  std::deque<Schedule> schedules_;                          // with one node they are good for every frame
  std::unique_ptr<std::atomic<std::uint32_t>[]> finished_;  // epoch in which tile i was last finished
  std::size_t tiles_max_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<RingSums> sources_, targets_;
  Own own_;
  Taps *taps_ = nullptr;
  std::atomic<std::uint64_t> cells_updated_{0};
};

}  // namespace outcrop
