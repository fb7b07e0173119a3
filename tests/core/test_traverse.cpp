// These tests check the order of updates. Every 64 bytes of a row contain a stamp and no values. A stamp names the
// plane, the row and the level of its place. The kernel of these tests checks each stamp that a stencil would read.
// When the kernel writes level t, each stamp that it reads must have level t - 1, and the overwritten stamp must have
// level t - 2. After the checks, the kernel writes the new stamp. A wrong order, a wrong address or a missing wait
// leads to a wrong stamp. If a thread does not wait for another thread, the thread sanitizer also reports a data race.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "outcrop/exec/traverse.hpp"

namespace outcrop {
namespace {

struct Stamp {
  std::int32_t level, z, y, guard;
};

constexpr std::int32_t guard_value = 12345;
constexpr long group = 16;  // number of cells from one stamp of a row to the next

// The data of the checking kernel. The kernel gets a pointer to an object of this type in place of the parameters of a
// stencil.
struct Check {
  Grid grid;
  long planes_most;
  bool may_divide;  // true if calls may update parts of rows
  std::atomic<long> groups_updated{0}, faults{0}, faults_wide{0};
};

bool is_rim(const Grid &grid, long z, long y) {
  return z < grid.first_plane() || z >= grid.end_plane() || y < grid.first_row() || y >= grid.end_row();
}

void checking_kernel(const outcrop_block *block) {
  // unlike other kernels, this kernel gets a pointer as its parameter
  Check &check = **static_cast<Check *const *>(block->scalars);
  const Grid &grid = check.grid;
  const bool is_divided = block->x1 - block->x0 < block->pitch;
  if (block->planes < 1 || block->planes > check.planes_most || block->y0 >= block->y1 || block->x0 < 0 ||
      block->x0 >= block->x1 || block->x1 > block->pitch || (is_divided && !check.may_divide) || block->nx != grid.nx)
    check.faults_wide.fetch_add(1);
  const auto stamp = [&](const void *plane, long y, long x) {
    return reinterpret_cast<const Stamp *>(static_cast<const std::byte *>(plane) +
                                           static_cast<std::size_t>(y) * grid.pitch_bytes +
                                           static_cast<std::size_t>(x) * grid.item_bytes);
  };
  const auto update = [&](long k, long y, long x) {
    const Stamp centre = *stamp(block->source[0][k], y, x);
    bool good = centre.y == y && !is_rim(grid, centre.z, y) && centre.guard == guard_value;
    for (long dz = -grid.radius_z; dz <= grid.radius_z; ++dz)
      for (long dy = -grid.radius_y; dy <= grid.radius_y; ++dy)
        for (long other_x = std::max(0L, x - group); other_x <= x + group && other_x < block->pitch; other_x += group) {
          const Stamp other = *stamp(block->source[0][k + dz], y + dy, other_x);
          const bool rim = is_rim(grid, centre.z + dz, y + dy);
          good = good && other.z == centre.z + dz && other.y == y + dy && (rim || other.level == centre.level);
        }
    Stamp *target = const_cast<Stamp *>(stamp(block->target[0][k], y, x));
    // level 1 may overwrite any stamp, because the slot held a plane that has left the window
    if (centre.level >= 1) good = good && target->z == centre.z && target->y == y && target->level == centre.level - 1;
    *target = Stamp{centre.level + 1, centre.z, centre.y, guard_value};
    if (!good) check.faults.fetch_add(1, std::memory_order_relaxed);
  };
  for (long k = 0; k < block->planes; ++k)
    for (long y = block->y0; y < block->y1; ++y) {
      for (long x = block->x0; x < block->x1; x += group) update(k, y, x);
      check.groups_updated.fetch_add((block->x1 - block->x0) / group, std::memory_order_relaxed);
    }
}

struct Case {
  long nz, ny, radius_z, radius_y, skew, levels, slab;
  Tiling tiling;
  unsigned threads;
  std::vector<unsigned> node_threads{threads};
  long groups = 1;  // number of stamps in a row
};

std::ostream &operator<<(std::ostream &out, const Case &c) {
  return out << c.nz << "x" << c.ny << " radii " << c.radius_z << "," << c.radius_y << " skew " << c.skew << " levels "
             << c.levels << " slab " << c.slab << " diamond " << c.tiling.diamond << " planes " << c.tiling.planes
             << " chunk " << c.tiling.chunk << " columns " << c.tiling.columns << " threads " << c.threads << " nodes "
             << c.node_threads.size() << " groups " << c.groups;
}

// Returns a placement of threads on synthetic nodes. The threads are not bound.
ThreadPlacement placement_of(const Case &c) {
  ThreadPlacement placement{{}, c.node_threads, std::vector<unsigned>(c.node_threads.size(), 0), false};
  for (unsigned node = 0; node < c.node_threads.size(); ++node)
    placement.threads.insert(placement.threads.end(), c.node_threads[node], ThreadPlace{node, 0});
  return placement;
}

Grid grid_of(const Case &c) {
  Grid grid;
  grid.nz = c.nz, grid.ny = c.ny, grid.nx = group * c.groups - 11;
  grid.radius_z = c.radius_z, grid.radius_y = c.radius_y, grid.skew_z = grid.skew_y = c.skew;
  grid.skew_x = group;
  grid.item_bytes = 4, grid.pitch_bytes = static_cast<std::size_t>(64 * c.groups);
  grid.plane_bytes = static_cast<std::size_t>(c.ny) * grid.pitch_bytes;
  grid.record_bytes = (grid.plane_bytes + 4 + 4095) / 4096 * 4096;
  grid.rim_z_low = grid.rim_z_high = c.radius_z;
  grid.rim_y_low = grid.rim_y_high = c.radius_y;
  return grid;
}

std::vector<RingSpec> two_rings(const Grid &grid, long planes) {
  return std::vector<RingSpec>(2, {planes, grid.record_bytes, false});
}

// Returns one stage that uses two rings alternately.
Stages stages_of(Check *check) {
  Stages stages{{{checking_kernel, {0}, {1}}, {checking_kernel, {1}, {0}}}, {std::vector<std::byte>(sizeof check), 0}};
  std::memcpy(stages.scalars.values.data(), &check, sizeof check);
  return stages;
}

void stamp_plane(const Grid &grid, std::byte *plane, long z, std::int32_t level) {
  for (std::size_t byte = 0; byte < grid.rows_bytes(); byte += 64)
    *reinterpret_cast<Stamp *>(plane + byte) =
        Stamp{level, static_cast<std::int32_t>(z), static_cast<std::int32_t>(byte / grid.pitch_bytes), guard_value};
}

// Runs one case. In a pass of a run, `Copy` actions copy the rim into the second ring. These tests have no `Copy`
// actions, so this function stamps all rows of the second ring, including the rim.
void run_case(const Case &c) {
  const Grid grid = grid_of(c);
  // the minimum number of slots for a slab and for the planes that the slab reads
  const long planes = std::min(grid.nz, c.slab + c.skew * (c.levels + 1));
  const Window window(grid, two_rings(grid, planes));
  Check check{grid, c.tiling.planes, c.tiling.columns > 0, {}, {}, {}};
  Team team(placement_of(c));
  const Stages stages = stages_of(&check);
  Traverse traverse(team, grid, window, stages, c.tiling, c.levels);
  traverse.set_levels(c.levels);
  const std::atomic<bool> cancelled{false};
  long read = 0, copied = 0, done = grid.first_plane();
  const long zeta_end = grid.end_plane() + c.skew * (c.levels - 1);
  for (long zeta = grid.first_plane(); zeta < zeta_end; zeta += c.slab) {
    const Slab slab{zeta, std::min(zeta + c.slab, zeta_end), c.levels};
    for (; read < std::min(grid.nz, slab.zeta1 + c.skew); ++read)
      stamp_plane(grid, window.ring(0).plane(read), read, 0);
    for (; copied < std::min(grid.nz, slab.zeta1); ++copied)
      stamp_plane(grid, window.ring(1).plane(copied), copied, -1);
    traverse.update(slab, cancelled);
    for (; done < std::min(grid.end_plane(), slab.zeta1 - c.skew * (c.levels - 1)); ++done)
      for (long y = grid.first_row(); y < grid.end_row(); ++y)
        for (long x = 0; x < grid.pitch_cells(); x += group) {
          const auto ring = static_cast<std::size_t>(c.levels % 2);
          const auto *stamp = reinterpret_cast<const Stamp *>(window.cell(ring, done, y, x));
          ASSERT_EQ(stamp->level, c.levels) << c << ": plane " << done << " row " << y << " cell " << x;
          ASSERT_EQ(stamp->z, done) << c;
        }
  }
  const long rows = (grid.end_plane() - grid.first_plane()) * (grid.end_row() - grid.first_row()) * c.levels;
  EXPECT_EQ(done, grid.end_plane()) << c;
  EXPECT_EQ(check.groups_updated.load(), rows * c.groups) << c;
  EXPECT_EQ(check.faults.load(), 0) << c;
  EXPECT_EQ(check.faults_wide.load(), 0) << c;
  EXPECT_EQ(traverse.cells_updated(), static_cast<std::uint64_t>(rows * grid.nx)) << c;
}

TEST(Traverse, UpdatesInALegalOrder) {
  const long radii[][3] = {{1, 1, 1}, {2, 2, 2}, {1, 3, 3}, {3, 0, 3}, {0, 2, 2}, {0, 0, 1}};
  for (const auto &radius : radii)
    for (long levels : {1, 2, 5, 8})
      for (long slab : {1, 3, 7, 100})
        for (long diamond : {0, 1, 2, 5})
          for (long planes : {1, 2, 4})
            run_case({17, 23, radius[0], radius[1], radius[2], levels, slab, {diamond, 4, planes}, 2});
}

// Threads divide a slab of few rows along zeta into chunks. A chunk can have one plane, several planes, or more planes
// than the slab. One call of the kernel updates a group of planes. The group can end inside a chunk.
TEST(Traverse, ChunksOfFewRowsKeepTheOrder) {
  const long radii[][3] = {{1, 0, 1}, {2, 1, 2}, {1, 0, 2}, {0, 0, 1}};
  for (const auto &radius : radii)
    for (long levels : {1, 5, 12})
      for (long slab : {1, 7, 100})
        for (long diamond : {0, 1, 3})
          for (long chunk : {1, 4, 9, 200})
            for (unsigned threads : {2u, 4u}) {
              const long rows = 2 * radius[1] + (chunk == 9 ? 3 : 1);
              run_case({41, rows, radius[0], radius[1], radius[2], levels, slab, {diamond, 4, 2, chunk}, threads});
            }
  run_case({400, 1, 1, 0, 1, 64, 500, {4, 4, 2, 16}, 3, {2, 1}});
}

TEST(Traverse, TakesGridsSmallerThanADiamond) {
  for (long nz : {3, 4, 6})
    for (long ny : {3, 4, 9}) run_case({nz, ny, 1, 1, 1, 12, 2, {8, 16, 2}, 3});
}

TEST(Traverse, ManyThreadsShareManyTiles) {
  for (unsigned threads : {1u, 2u, 4u, 7u}) run_case({30, 120, 1, 1, 1, 12, 11, {3, 16, 2}, threads});
}

// A range of columns moves to lower x with each level. The number of cells in a row is not always a multiple of the
// length of a range. A range can be longer than a row. A range can also be shorter than the distance that it moves in a
// slab.
TEST(Traverse, RangesOfColumnsKeepTheOrder) {
  for (long groups : {1, 5, 12})
    for (long columns : {1, 3, 20})
      for (long levels : {1, 2, 7})
        for (long diamond : {0, 2})
          for (long chunk : {0, 4}) {
            const Tiling tiling{.diamond = diamond, .sweep_rows = 4, .chunk = chunk, .columns = columns * group};
            run_case({12, 14, 1, 1, 1, levels, 5, tiling, 3, {3}, groups});
            run_case({15, 17, 2, 2, 2, levels, 50, tiling, 2, {1, 1}, groups});
          }
}

// If a block has bounds in x, it is not divided into ranges of columns. Only the cells inside the bounds of the block
// are updated.
TEST(Traverse, RangesOfColumnsKeepTheBoundsOfABlock) {
  const Tiling tiling{.diamond = 2, .columns = group};
  const Case c{.nz = 9,
               .ny = 12,
               .radius_z = 1,
               .radius_y = 1,
               .skew = 1,
               .levels = 1,
               .slab = 50,
               .tiling = tiling,
               .threads = 2,
               .groups = 6};
  const Grid grid = grid_of(c);
  const Window window(grid, two_rings(grid, grid.nz));
  Check check{grid, 2, true, {}, {}, {}};
  Team team(2);
  const Stages stages = stages_of(&check);
  Traverse traverse(team, grid, window, stages, tiling, 1);
  const std::atomic<bool> cancelled{false};
  for (long z = 0; z < grid.nz; ++z) stamp_plane(grid, window.ring(0).plane(z), z, 0);
  for (long z = 0; z < grid.nz; ++z) stamp_plane(grid, window.ring(1).plane(z), z, -1);
  traverse.update({1, grid.end_plane(), 1, {.x_low = {group, 0}, .x_high = {4 * group, 0}}}, cancelled);
  EXPECT_EQ(check.groups_updated.load(), 7 * 10 * 3);
  EXPECT_EQ(check.faults.load(), 0);
}

// The threads of a node take the tiles of their own node first. Some tiles wait for tiles of other nodes. A mistake in
// the waits between nodes causes a wrong order or a deadlock.
TEST(Traverse, NodesTakeTheirOwnRowsFirst) {
  for (const auto &node_threads :
       std::vector<std::vector<unsigned>>{{1, 1}, {2, 1}, {1, 3}, {1, 1, 1}, {2, 2, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}})
    for (long ny : {5, 23, 120})
      for (long diamond : {0, 1, 3})
        for (long levels : {1, 7, 12}) {
          const unsigned threads = std::accumulate(node_threads.begin(), node_threads.end(), 0u);
          run_case({30, ny, 1, 1, 1, levels, 11, {diamond, 4, 2}, threads, node_threads});
        }
}

TEST(Traverse, FewerLevelsThanPrepared) {
  const Case c{9, 12, 1, 1, 1, 6, 50, {2, 16, 2}, 2};
  const Grid grid = grid_of(c);
  const Window window(grid, two_rings(grid, grid.nz));
  Check check{grid, 2, false, {}, {}, {}};
  Team team(2);
  const Stages stages = stages_of(&check);
  Traverse traverse(team, grid, window, stages, c.tiling, c.levels);
  const std::atomic<bool> cancelled{false};
  for (long levels : {6L, 1L, 4L}) {
    for (long z = 0; z < grid.nz; ++z) stamp_plane(grid, window.ring(0).plane(z), z, 0);
    for (long z = 0; z < grid.nz; ++z) stamp_plane(grid, window.ring(1).plane(z), z, -1);
    const long before = check.groups_updated.load();
    traverse.set_levels(levels);
    traverse.update({1, grid.end_plane() + levels - 1, levels}, cancelled);
    EXPECT_EQ(check.groups_updated.load() - before, 7 * 10 * levels);
    EXPECT_EQ(check.faults.load(), 0);
  }
}

// After Ctrl-C, the run must not wait until the slab is complete. Threads skip the remaining tiles, and no tile may
// wait for a skipped tile.
TEST(Traverse, StopsAtOnceWhenCancelled) {
  for (const long chunk : {0, 8}) {
    const Case c{40, 200, 1, 1, 1, 20, 50, {2, 16, 2, chunk}, 3};
    const Grid grid = grid_of(c);
    const Window window(grid, two_rings(grid, grid.nz));
    Check check{grid, 2, false, {}, {}, {}};
    Team team(3);
    const Stages stages = stages_of(&check);
    Traverse traverse(team, grid, window, stages, c.tiling, c.levels);
    const std::atomic<bool> cancelled{true};
    traverse.update({1, 50, 20}, cancelled);
    EXPECT_EQ(check.groups_updated.load(), 0);
  }
}

// The rows that kernel calls have prefetched and that no later call has used yet.
struct Prefetches {
  Grid grid;
  std::set<const void *> waiting{};
  long rows = 0, repeated = 0;
};

// Updates nothing. Removes from `waiting` each row that a kernel would read or write. After that, adds the rows that
// this call prefetches to `waiting`.
void watching_kernel(const outcrop_block *block) {
  Prefetches &all = **static_cast<Prefetches *const *>(block->scalars);
  const auto use = [&](const void *plane, long y) {
    all.waiting.erase(static_cast<const std::byte *>(plane) + static_cast<std::size_t>(y) * all.grid.pitch_bytes);
  };
  for (long k = 0; k < block->planes; ++k)
    for (long y = block->y0; y < block->y1; ++y) {
      use(block->target[0][k], y);
      for (long dz = -all.grid.radius_z; dz <= all.grid.radius_z; ++dz)
        for (long dy = -all.grid.radius_y; dy <= all.grid.radius_y; ++dy) use(block->source[0][k + dz], y + dy);
    }
  all.rows += block->prefetch_rows;
  for (long i = 0; i < block->prefetch_rows; ++i)
    if (!all.waiting.insert(block->prefetch[i]).second) ++all.repeated;
}

// Bandwidth would be wasted if no later call used a prefetched row, or if a row were prefetched twice.
TEST(Traverse, CallsUseEachPrefetchedRowOnce) {
  for (long radius : {1, 2})
    for (long diamond : {0, 1, 3, 8})
      for (long rows_at_once : {1, 4}) {
        const Tiling tiling{.diamond = diamond, .planes = 2, .rows_at_once = rows_at_once, .prefetch = true};
        const Case c{40, 60, radius, radius, radius, 12, 50, tiling, 1};
        const Grid grid = grid_of(c);
        const Window window(grid, two_rings(grid, grid.nz));
        Prefetches all{grid};
        Prefetches *data = &all;
        Stages stages{{{watching_kernel, {0}, {1}}, {watching_kernel, {1}, {0}}},
                      {std::vector<std::byte>(sizeof data), 0}};
        std::memcpy(stages.scalars.values.data(), &data, sizeof data);
        Team team(1);
        Traverse traverse(team, grid, window, stages, c.tiling, c.levels);
        const std::atomic<bool> cancelled{false};
        traverse.update({grid.first_plane(), grid.end_plane() + radius * (c.levels - 1), c.levels}, cancelled);
        EXPECT_GT(all.rows, 0) << c;
        EXPECT_EQ(all.waiting.size(), 0) << c;
        EXPECT_EQ(all.repeated, 0) << c;
      }
}

}  // namespace
}  // namespace outcrop
