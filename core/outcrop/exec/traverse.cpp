#include "outcrop/exec/traverse.hpp"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <span>
#include <thread>

#include "outcrop/exec/acquisition.hpp"
#include "outcrop/exec/transfers.hpp"

namespace outcrop {
namespace {

// Returns the number of rows by which tiles are shifted to lower y. Without a shift, the tiles begin at row 0. If the
// frame has rows of a neighbouring rank, the tiles are shifted to the first row of the frame. The edge of a block in y
// can have the same slope as the lower left side of a diamond. If the slopes are the same, the shift also moves the
// lower left side of a diamond onto the edge of the block. So the edge cuts no tile. On the lower left side, y +
// skew*level is an odd multiple of skew*D, where D is the size of the diamonds.
long rows_down(const UpdateRegion &region, const Grid &grid, const Tiling &tiling, long begin_row) {
  const Bound &edge = region.y_low.slope != 0 ? region.y_low : region.y_high;
  if (tiling.diamond == 0 || tiling.chunk > 0 || edge.slope != -grid.skew_y) return -begin_row;
  const long half = grid.skew_y * tiling.diamond, down = (half - edge.at_zero + begin_row) % (2 * half);
  return (down < 0 ? down + 2 * half : down) - begin_row;
}

// The pointers to the planes of all operands of a kernel call. Each thread has its own list of pointers, and uses the
// memory of the list again for the next call.
thread_local std::vector<const void *> source_planes;

// Returns the number of times that the inner loop of the kernel runs to update a part.
long loops_of(const Part &part, long rows_at_once) {
  if (part.empty()) return 0;
  return ((part.z1 - part.z0) * part.cells.rows() + rows_at_once - 1) / rows_at_once;
}

// The rows that the next group of a tile uses for the first time. The inner loops of the current group prefetch these
// rows, and `loops` is the number of these loops. A row is given by the address of its first cell. Each inner loop
// prefetches at most one row. Each call of the kernel gets a share of the rows in proportion to its number of loops. If
// one call prefetched all rows, the many prefetches would delay the loads of the kernel.
struct RowsAhead {
  std::vector<const void *> rows;
  std::vector<std::pair<long, long>> used;  // per ring: the range of rows that the listed levels use
  std::size_t taken = 0;
  long loops = 0;

  void clear() {
    rows.clear();
    taken = 0;
    loops = 0;
  }

  // Returns the rows that the next call prefetches. This call has `own` loops.
  std::span<const void *const> take(long own) {
    const auto left = static_cast<long>(rows.size() - taken);
    const long count = loops > 0 ? std::min({left, own, (left * own + loops - 1) / loops}) : 0;
    loops -= own;
    const std::span found(rows.data() + taken, static_cast<std::size_t>(count));
    taken += found.size();
    return found;
  }
};

// Each thread has its own `rows_ahead`, and uses the memory of this object again for the next group.
thread_local RowsAhead rows_ahead;

}  // namespace

Traverse::Traverse(Team &team, const Grid &grid, const Window &window, const Stages &stages, Tiling tiling,
                   long max_levels)
    : team_(team), grid_(grid), window_(window), stages_(stages), tiling_(tiling), levels_(max_levels) {
  assert(tiling.planes >= 1 && tiling.planes <= Tiling::max_planes);
  assert(tiling.columns >= 0 && tiling.columns * static_cast<long>(grid.item_bytes) % 64 == 0);
}

void Traverse::set_levels(long levels) {
  levels_ = levels;
  schedules_.clear();
}

Chunks Traverse::chunks_of(const Slab &slab) const {
  if (tiling_.chunk == 0) return {};
  const auto count = [&](long zetas) { return (zetas + tiling_.chunk - 1) / tiling_.chunk; };
  const long zetas = slab.zeta1 - slab.zeta0;
  const bool is_part = grid_.has_below() || grid_.has_above();  // true if the slab may contain planes of other ranks
  return {count(zetas), tiling_.chunk, count(is_part ? zetas : std::min(zetas, grid_.nz))};
}

std::vector<Tile> Traverse::make_tiles(const Chunks &chunks, unsigned threads, const std::vector<long> &begin) const {
  const long diamond = tiling_.diamond;
  if (tiling_.chunk > 0)
    return diamond == 0 ? chunk_sweep_tiles(levels_, rows(), grid_.skew_z, chunks)
                        : band_tiles(levels_, rows(), 2 * diamond, chunks, team_.size());
  if (diamond == 0) return sweep_tiles(levels_, rows(), grid_.skew_y, tiling_.sweep_rows);
  // rows_down() shifts the tiles to the first row of the frame, and then less than one tile further down. So the
  // highest rows need one more tile.
  return diamond_tiles(levels_, rows() + 2 * grid_.skew_y * diamond, grid_.skew_y, diamond, threads, begin);
}

Traverse::Schedule Traverse::make_schedule(const Chunks &chunks) const {
  const ThreadPlacement &placement = team_.placement();
  const unsigned nodes = placement.nodes();
  std::vector<long> node_rows = first_rows(window_, placement.node_threads);
  // the first row of the window is subtracted, because tiles count rows from this row
  for (long &row : node_rows) row -= window_.begin_row();
  const unsigned threads = *std::max_element(placement.node_threads.begin(), placement.node_threads.end());
  std::vector<Tile> tiles = make_tiles(chunks, threads, rows_to_begin_at(node_rows));
  std::vector<unsigned> owners;
  for (const Tile &tile : tiles) owners.push_back(owner_of((tile.y_low + tile.y_high) / 2, node_rows));
  return {window_.frame(), rows(), chunks.count, std::move(tiles), NodeQueues(nodes, owners)};
}

// Returns the schedule of a slab. The frame and the thickness of the slab can change with every call, but a run has
// only a few different pairs of frame and thickness. `schedules_` keeps one schedule for each pair until set_levels()
// is called.
Traverse::Schedule &Traverse::schedule(const Slab &slab) {
  const bool any_frame = team_.placement().nodes() == 1;
  const Chunks chunks = chunks_of(slab);
  for (Schedule &known : schedules_)
    if (known.chunks == chunks.count && known.rows == rows() && (any_frame || known.frame == window_.frame()))
      return known;
  Schedule &made = schedules_.emplace_back(make_schedule(chunks));
  if (made.tiles.size() > max_tiles_) {
    max_tiles_ = made.tiles.size();
    finished_ = std::make_unique<std::atomic<std::uint32_t>[]>(max_tiles_);
  }
  return made;
}

void Traverse::update(const Slab &slab, const std::atomic<bool> &cancelled) {
  const long columns = tiling_.columns, skew = grid_.skew_x;
  const bool has_bounds_x =
      slab.region.x_low.at_zero > -UpdateRegion::far || slab.region.x_high.at_zero < UpdateRegion::far;
  if (columns == 0 || skew == 0 || has_bounds_x) return update_tiles(slab, cancelled);
  // At level 1, the first range begins at cell 0. At the last level, the last range ends where the row ends or later.
  const long end = grid_.pitch_cells() + skew * (slab.levels - 1);
  Slab range = slab;
  for (long low = 0; low < end; low += columns) {
    range.region.x_low = {low + skew, -skew};
    range.region.x_high = {low + columns + skew, -skew};
    update_tiles(range, cancelled);
  }
}

void Traverse::update_tiles(const Slab &slab, const std::atomic<bool> &cancelled) {
  ++epoch_;
  Schedule &plan = schedule(slab);
  const long down = rows_down(slab.region, grid_, tiling_, window_.begin_row());
  plan.queues.restart();
  team_.run([&](unsigned member) {
    const unsigned node = team_.node_of(member);
    for (std::size_t i = plan.queues.take(node); i != NodeQueues::none; i = plan.queues.take(node)) {
      await(plan.tiles[i], epoch_, cancelled);
      if (!cancelled.load(std::memory_order_relaxed)) update_tile(plan.tiles[i], slab, down);
      finished_[i].store(epoch_, std::memory_order_release);
    }
  });
}

// The threads of a node take its tiles in the order of the list. A tile needs only tiles that come earlier in the list.
// So the threads cannot wait for each other forever (team.hpp contains the proof).
void Traverse::await(const Tile &tile, std::uint32_t epoch, const std::atomic<bool> &cancelled) const {
  constexpr int spins_before_yield = 1000;
  for (const std::size_t i : tile.needs) {
    const auto &finished = finished_[i];
    for (int spin = 0; finished.load(std::memory_order_acquire) != epoch; ++spin) {
      if (cancelled.load(std::memory_order_relaxed)) return;
      if (spin < spins_before_yield)
        pause_processor();
      else
        std::this_thread::yield();
    }
  }
}

Part Traverse::part_of(const Tile &tile, const UpdateRegion &region, long down, long zeta, long zeta_end,
                       long level) const {
  const long lag = grid_.skew_z * (level - 1), inset = tile.slope * std::labs(level - tile.centre);
  return {std::max({grid_.first_plane(), zeta - lag, region.z_low.at(level)}),
          std::min({grid_.end_plane(), zeta_end - lag, region.z_high.at(level)}),
          {std::max({first_row(), tile.y_low - down + inset, region.y_low.at(level)}),
           std::min({end_row(), tile.y_high - down - inset, region.y_high.at(level)}),
           std::max(0L, region.x_low.at(level)), std::min(grid_.pitch_cells(), region.x_high.at(level))}};
}

// Lists the rows that are new in the next group of values of zeta. The next group begins at `zeta_end`. A row is new if
// no lower level of the tile uses the row in the same ring. Most rows of a level are not new, because lower levels use
// them in an earlier group or in the same group. At the lowest level, all rows of the next planes are new. If the tile
// is wider at a level than at the levels below, the additional rows on both sides are also new.
void Traverse::list_rows_ahead(const Tile &tile, const UpdateRegion &region, long down, long zeta, long zeta_end,
                               long end) const {
  constexpr long far = UpdateRegion::far;
  RowsAhead &ahead = rows_ahead;  // each use of the name of a thread_local object takes time
  ahead.used.assign(window_.rings(), {far, -far});
  const auto add = [&](std::size_t ring, long z, long y0, long y1) {
    const Rectangle rows{std::max(y0, window_.begin_row()), std::min(y1, window_.end_row()), 0, 1};
    if (rows.empty()) return;  // most rows are not new
    for (const Rectangle &part : unfolded(grid_, rows)) {
      if (part.empty()) continue;
      const std::byte *row = window_.cell(ring, z, part.y0, 0);
      for (long y = part.y0; y < part.y1; ++y, row += window_.pitch_bytes()) ahead.rows.push_back(row);
    }
  };
  const auto add_new = [&](std::size_t ring, long z0, long z1, long y0, long y1) {
    auto &[low, high] = ahead.used[ring];
    const bool is_unused = low > high;
    for (long z = z0; z < z1; ++z) {
      add(ring, z, y0, std::min(low, y1));
      if (!is_unused) add(ring, z, std::max(high, y0), y1);
    }
    low = std::min(low, y0);
    high = std::max(high, y1);
  };
  for (long level = tile.level_first; level <= tile.level_last; ++level) {
    ahead.loops += loops_of(part_of(tile, region, down, zeta, zeta_end, level), tiling_.rows_at_once);
    const auto [z0, z1, cells] = part_of(tile, region, down, zeta_end, std::min(zeta_end + tiling_.planes, end), level);
    if (z0 >= z1 || cells.empty()) continue;
    const StageCall &stage = stages_.at(level);
    for (const std::size_t ring : stage.sources)
      add_new(ring, z0 + grid_.radius_z, z1 + grid_.radius_z, cells.y0 - grid_.radius_y, cells.y1 + grid_.radius_y);
    for (const std::size_t ring : stage.targets) add_new(ring, z0, z1, cells.y0, cells.y1);
  }
}

void Traverse::update_tile(const Tile &tile, const Slab &slab, long down) {
  // the first level after the lead (problem.hpp)
  const long r = grid_.skew_z, first_level = stages_.lead.levels + 1;
  const UpdateRegion &region = slab.region;
  if (tile.y_low - down >= end_row() || tile.y_high - down <= first_row()) return;
  // Outside this range of zeta, no level of the tile has planes of the grid.
  const long begin = std::max(slab.zeta0 + tile.zeta_low, grid_.first_plane() + r * (tile.level_first - 1));
  const long end = std::min({slab.zeta1, slab.zeta0 + tile.zeta_high, grid_.end_plane() + r * (tile.level_last - 1)});
  std::uint64_t updated = 0;
  for (long zeta = begin; zeta < end; zeta += tiling_.planes) {
    const long zeta_end = std::min(zeta + tiling_.planes, end);
    // Prefetch: list the rows for the next group. The kernel calls of this group prefetch these rows.
    rows_ahead.clear();
    if (tiling_.prefetch && zeta_end < end) list_rows_ahead(tile, region, down, zeta, zeta_end, end);
    for (long level = tile.level_first; level <= tile.level_last; ++level) {
      // Clip: compute the part of the tile at this level that lies inside the grid and inside the region of the block.
      // If the planes of a level lie below the grid, the planes of all higher levels also lie below the grid.
      if (zeta_end - r * (level - 1) <= grid_.first_plane()) break;
      const auto [z0, z1, cells] = part_of(tile, region, down, zeta, zeta_end, level);
      if (z0 >= z1 || cells.empty()) continue;

      // Check: before the first update, add the owned cells to the checksums of the arrays that the pass reads.
      if (level == first_level)
        sum_planes(sources_, std::max(z0, own_.z0), std::min(z1, own_.z1), intersection(cells, own_.cells));

      // Before the first step: process the receivers, norms and snapshots that need the values before this step.
      if (level == first_level && acquisition_ != nullptr) acquisition_->before(z0, z1, cells);

      // Update: call the kernel of the level's stage.
      update_planes(level, z0, z1, cells);

      // After each level: add the sources to the fields. After the last stage of a step: process the receivers, norms
      // and snapshots.
      if (acquisition_ != nullptr) acquisition_->after(level, z0, z1, cells);

      // Sum: after the last level, add the cells to the checksums of the arrays that the pass writes.
      if (level == slab.levels) sum_planes(targets_, z0, z1, cells, true);

      // Count the updated cells. Padding cells do not count.
      const long columns = std::min(grid_.nx, cells.x1) - std::min(grid_.nx, cells.x0);
      updated += static_cast<std::uint64_t>((z1 - z0) * cells.rows() * columns);
    }
  }
  cells_updated_.fetch_add(updated, std::memory_order_relaxed);
}

// Updates planes by calls of the kernel. If the streaming axis is periodic, planes with neighbouring positions are not
// neighbours in space, so each plane needs a separate call.
void Traverse::update_planes(long level, long z0, long z1, const Rectangle &cells) {
  const std::vector<std::size_t> &rings = stages_.at(level).sources;
  const long r = grid_.radius_z, planes = grid_.periodic_z ? 1 : z1 - z0;
  source_planes.resize(rings.size() * static_cast<std::size_t>(planes + 2 * r));
  for (long position = z0; position < z1; position += planes) {
    const long first = grid_.plane(position);
    const void **next = source_planes.data();
    for (const std::size_t ring : rings)
      for (long z = first - r; z < first + planes + r; ++z) *next++ = window_.first_row(ring, grid_.position(z));
    call(level, position, position + planes, cells, source_planes.data());
  }
}

// Calls the kernel. For each operand, `planes` has the planes from z0 - radius to z1 - 1 + radius.
void Traverse::call(long level, long z0, long z1, const Rectangle &cells, const void *const *planes) const {
  constexpr std::size_t max_operands = 64;
  const StageCall &stage = stages_.at(level);
  const void *const *sources[max_operands];
  void *targets[max_operands][Tiling::max_planes];
  void *const *target_planes[max_operands];
  assert(stage.sources.size() <= max_operands && stage.targets.size() <= max_operands);
  for (std::size_t i = 0; i < stage.sources.size(); ++i)
    sources[i] = planes + static_cast<long>(i) * (z1 - z0 + 2 * grid_.radius_z) + grid_.radius_z;
  for (std::size_t j = 0; j < stage.targets.size(); ++j) {
    for (long z = z0; z < z1; ++z) targets[j][z - z0] = window_.first_row(stage.targets[j], z);
    target_planes[j] = targets[j];
  }
  const long first_row = window_.begin_row();
  for (const Rectangle &part : unfolded(grid_, cells)) {
    if (part.empty()) continue;
    const auto ahead = rows_ahead.take(loops_of({z0, z1, part}, tiling_.rows_at_once));
    const outcrop_block block{.target = target_planes,
                              .source = sources,
                              .planes = z1 - z0,
                              .y0 = part.y0 - first_row,
                              .y1 = part.y1 - first_row,
                              .x0 = part.x0,
                              .x1 = part.x1,
                              .nx = grid_.nx,
                              .ny = rows(),
                              .pitch = window_.pitch_cells(),
                              .scalars = stages_.scalars_of(level),
                              .rows_at_once = tiling_.rows_at_once,
                              .prefetch = ahead.data(),
                              .prefetch_rows = static_cast<long>(ahead.size()),
                              .z = grid_.plane(z0),
                              .y = first_row};
    stage.kernel(&block);
  }
}

void Traverse::sum_planes(const std::vector<RingSums> &sums, long z0, long z1, const Rectangle &cells,
                          bool searches) const {
  // the rows of neighbouring ranks are left out, because they have no checksums here
  const Rectangle inside = intersection(cells, whole_plane(grid_));
  for (const RingSums &one : sums)
    for (const Rectangle &part : unfolded(grid_, inside))
      for (long z = z0; z < z1; ++z) {
        one.sums->add(z, window_.origin(one.ring, z), window_.pitch_bytes(), part);
        if (searches) one.sums->search(z, window_.origin(one.ring, z), window_.pitch_bytes(), part);
      }
}

}  // namespace outcrop
