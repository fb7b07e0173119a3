// Updates one slab of the window. The slab is divided into tiles (tiles.hpp), and threads update the tiles.
//
// A level is a stage of a step (problem.hpp). The skewed coordinate zeta of a plane at a level is z + skew*(level - 1),
// where z is the position of the plane. At each level, a slab contains the planes with zeta0 <= zeta < zeta1. A thread
// updates a tile in groups of `planes` values of zeta, in ascending order. In each group, the thread updates the levels
// in ascending order. So a plane is still in the cache when the next level reads this plane:
//
//     level 3   z-2r z-2r+1
//     level 2        z-r  z-r+1
//     level 1             z   z+1
//
// Each call of the kernel updates `planes` neighbouring planes. So the kernel can load a value once and use it for
// several of these planes.
//
// Ranges of columns: a tile of long rows is larger than the cache. So long rows can be divided into ranges of columns.
// Threads update all tiles in one range before they begin the next range. From each level to the next level, a range
// moves by `skew_x` cells to lower x. So all values that an update reads are in the same range or in earlier ranges.
// Later ranges do not read the old values that an update overwrites:
//
//     level 3   range 0 |   range 1   |   range 2   |
//     level 2     range 0   |   range 1   |   range 2   |
//     level 1       range 0     |   range 1   |   range 2
//             x = 0          columns     2*columns
//
// On several NUMA nodes, a thread first takes the tiles of the rows that its node owns (team.hpp). When its node has no
// tiles left, the thread takes tiles of other nodes. A schedule lists the tiles of each node. The rows that a node owns
// depend on the frame, and the number of chunks depends on the thickness of the slab. So each pair of a frame and a
// thickness has its own schedule.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/tiles.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// The sizes of the tiles of a slab.
struct Tiling {
  /// D, the size of the diamonds; a band has 2 D levels; 0 means plain sweeps without diamonds
  long diamond = 0;
  long sweep_rows = 16;  ///< number of rows in a block of a plain sweep
  long planes = 2;       ///< number of planes that a kernel call updates, 1 .. max_planes
  /// number of values of zeta in a chunk, for bands and for sweeps over few rows; 0 means that only y is divided
  long chunk = 0;
  long rows_at_once = 1;  ///< number of rows that the inner loop of a kernel updates together (kernel.h)
  bool prefetch = false;  ///< true if kernels prefetch the new rows of the next group of zetas (kernel.h)
  /// number of cells of a range of columns, a multiple of 64 bytes; 0 means whole rows; without effect if x is
  /// periodic, or if the region of a block has bounds in x
  long columns = 0;
  static constexpr long max_planes = 4;
};

/// A bound of a region. From each level to the next level, the position of the bound changes by `slope`.
struct Bound {
  long at_zero = 0, slope = 0;

  long at(long level) const { return at_zero + slope * level; }
};

/// A region is the set of cells that a block updates at each level. The region has the cells with z_low <= z < z_high,
/// y_low <= y < y_high and x_low <= x < x_high. By default, the region contains all cells of the grid. The bounds in x
/// count cells. In bytes, each bound in x is a multiple of 64.
struct UpdateRegion {
  static constexpr long far = 1L << 40;
  Bound z_low{-far, 0}, z_high{far, 0}, y_low{-far, 0}, y_high{far, 0}, x_low{-far, 0}, x_high{far, 0};
};

struct Slab {
  long zeta0 = 0, zeta1 = 0;
  long levels = 0;
  UpdateRegion region{};
};

/// A block computes checksums of the cells that it owns. Exactly one block owns each cell. A block may also read and
/// update cells that it does not own.
struct OwnedCells {
  long z0 = -UpdateRegion::far, z1 = UpdateRegion::far;
  Rectangle cells{-UpdateRegion::far, UpdateRegion::far, -UpdateRegion::far, UpdateRegion::far};
};

/// The cells that a thread updates at one level of a group: the planes z0 <= z < z1, and the cells of each plane.
struct Part {
  long z0 = 0, z1 = 0;
  Rectangle cells;

  bool empty() const { return z0 >= z1 || cells.empty(); }
};

class PlaneSums;    // transfers.hpp
class Acquisition;  // acquisition.hpp

/// A ring and the object that computes the checksums of its planes.
struct RingSums {
  std::size_t ring = 0;
  PlaneSums *sums = nullptr;
};

class Traverse {
 public:
  /// Prepares updates of up to `max_levels` levels. `stages` must outlive this object.
  Traverse(Team &team, const Grid &grid, const Window &window, const Stages &stages, Tiling tiling, long max_levels);

  /// Sets the number of levels, at most `max_levels`. Must be called only between passes.
  void set_levels(long levels);

  /// Updates every cell of the slab. If `cancelled` becomes true, update() returns early, and does not update all
  /// cells.
  void update(const Slab &slab, const std::atomic<bool> &cancelled);

  /// Selects the checksums that all later updates compute. The owned cells are added to the checksums `sources` before
  /// level 1 updates these cells. All updated cells are added to the checksums `targets` after the last level.
  void sum_into(std::vector<RingSums> sources, std::vector<RingSums> targets) {
    sources_ = std::move(sources);
    targets_ = std::move(targets);
  }
  void set_own(const OwnedCells &own) { own_ = own; }

  /// If `acquisition` is not null, all later updates call the functions of `acquisition` before and after each level.
  void set_acquisition(Acquisition *acquisition) { acquisition_ = acquisition; }

  std::uint64_t cells_updated() const { return cells_updated_.load(std::memory_order_relaxed); }

 private:
  // The tiles of a slab, in the order in which threads take them. Each node has a queue of its tiles.
  struct Schedule {
    Rectangle frame;
    long rows, chunks;
    std::vector<Tile> tiles;
    NodeQueues queues;
  };

  Chunks chunks_of(const Slab &slab) const;
  long rows() const { return window_.end_row() - window_.begin_row(); }
  // An update may change only the rows first_row() <= row < end_row(). On each side with a neighbouring rank,
  // `radius_y` rows at the edge of the frame are read but not updated.
  long first_row() const { return grid_.rim_y_low < 0 ? window_.begin_row() + grid_.radius_y : grid_.first_row(); }
  long end_row() const { return grid_.rim_y_high < 0 ? window_.end_row() - grid_.radius_y : grid_.end_row(); }
  std::vector<Tile> make_tiles(const Chunks &chunks, unsigned threads, const std::vector<long> &begin) const;
  Schedule make_schedule(const Chunks &chunks) const;
  Schedule &schedule(const Slab &slab);
  void update_tiles(const Slab &slab, const std::atomic<bool> &cancelled);
  void update_tile(const Tile &tile, const Slab &slab, long down);
  // Returns the part of a tile that is updated at one level of a group. The group has the values of zeta from `zeta` up
  // to but not including `zeta_end`. The part lies inside the grid and inside the region of the block.
  Part part_of(const Tile &tile, const UpdateRegion &region, long down, long zeta, long zeta_end, long level) const;
  void list_rows_ahead(const Tile &tile, const UpdateRegion &region, long down, long zeta, long zeta_end,
                       long end) const;
  void update_planes(long level, long z0, long z1, const Rectangle &cells);
  void call(long level, long z0, long z1, const Rectangle &cells, const void *const *sources) const;
  void sum_planes(const std::vector<RingSums> &sums, long z0, long z1, const Rectangle &cells,
                  bool searches = false) const;
  void await(const Tile &tile, std::uint32_t epoch, const std::atomic<bool> &cancelled) const;

  Team &team_;
  const Grid grid_;
  const Window &window_;
  const Stages &stages_;
  const Tiling tiling_;
  long levels_;
  // With several nodes, each frame has its own schedule. With one node, frames with the same number of rows share a
  // schedule.
  std::deque<Schedule> schedules_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> finished_;  // per tile: number of the last update() that finished it
  std::size_t max_tiles_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<RingSums> sources_, targets_;
  OwnedCells own_;
  Acquisition *acquisition_ = nullptr;
  std::atomic<std::uint64_t> cells_updated_{0};
};

}  // namespace outcrop
