// These tests check which rows and which memory each NUMA node owns. Rows and memory must be divided without gaps and
// in proportion to the threads of the nodes. The memory of a row must be on the node that owns the row. Threads must
// take each item of a queue once, and must take the items of their own node first.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/tiles.hpp"
#include "pages.hpp"

namespace outcrop {
namespace {

using Counts = std::vector<unsigned>;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

Grid grid_of(long ny, std::size_t pitch_bytes) {
  Grid grid;
  grid.nz = 50, grid.ny = ny, grid.nx = static_cast<long>(pitch_bytes / 4);
  grid.radius_z = grid.radius_y = 1;
  grid.item_bytes = 4, grid.pitch_bytes = pitch_bytes;
  grid.plane_bytes = static_cast<std::size_t>(ny) * pitch_bytes;
  grid.record_bytes = (grid.plane_bytes + 4 + 4095) / 4096 * 4096;
  return grid;
}

std::vector<RingSpec> rings_of(const Grid &grid, const std::vector<long> &planes) {
  std::vector<RingSpec> rings;
  for (const long count : planes) rings.push_back({count, grid.record_bytes, false});
  return rings;
}

const std::vector<Counts> all_nodes{{1}, {1, 1}, {4, 4}, {3, 1}, {2, 5, 1}, {2, 2, 2, 2}, Counts(8, 3)};

TEST(Ownership, RowsOfAPlaneAddUp) {
  for (const long ny : {1L, 2L, 7L, 64L, 1000L, 4096L})
    for (const std::size_t pitch : {std::size_t{64}, std::size_t{4096}})
      for (const Counts &threads : all_nodes) {
        const Window window(grid_of(ny, pitch), rings_of(grid_of(ny, pitch), {3, 2}));
        const std::vector<long> rows = first_rows(window, threads);
        ASSERT_EQ(rows.size(), threads.size() + 1);
        EXPECT_EQ(rows.front(), 0);
        EXPECT_EQ(rows.back(), ny);
        EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
        const double sum = std::accumulate(threads.begin(), threads.end(), 0.0);
        const double tail_rows = 4096.0 / static_cast<double>(pitch) + 2;
        for (std::size_t i = 0; i < threads.size(); ++i)
          EXPECT_NEAR(static_cast<double>(rows[i + 1] - rows[i]), static_cast<double>(ny) * threads[i] / sum,
                      tail_rows);
        for (long y = 0; y < ny; ++y) {
          const unsigned node = owner_of(y, rows);
          ASSERT_TRUE(rows[node] <= y && y < rows[node + 1]) << "row " << y;
        }
        EXPECT_EQ(owner_of(-5, rows), owner_of(0, rows)) << "tiles may stick out of the grid";
        EXPECT_EQ(owner_of(ny + 5, rows), threads.size() - 1);
      }
}

// The rows of a block can begin anywhere in the grid, and can be shorter than rows of the grid. The place of a row in
// its slot determines which node owns the row.
TEST(Ownership, RowsOfAFrameGoByTheirPlaceInTheSlot) {
  const Grid grid = grid_of(1000, 4096);
  Window window(grid, std::vector<RingSpec>(2, {3, 401 * 4096, false}));
  window.set_frame({300, 700, 0, 1024});
  EXPECT_EQ(first_rows(window, {1, 1}), (std::vector<long>{300, 501, 700}));
  // the last block may have few rows, so that the part of the second node is not used
  window.set_frame({900, 1000, 0, 1024});
  EXPECT_EQ(first_rows(window, {1, 1}), (std::vector<long>{900, 1000, 1000}));
  window.set_frame({100, 900, 0, 512});
  EXPECT_EQ(first_rows(window, {1, 1}), (std::vector<long>{100, 501, 900}));
}

// This test makes large windows, but does not access their memory. So Linux allocates no pages for these windows.
TEST(Ownership, MemoryIsCutAtHugePagesWithoutGaps) {
  for (const long ny : {4096L, 4099L, 10000L})
    for (const Counts &threads : all_nodes) {
      const Window window(grid_of(ny, 8192), rings_of(grid_of(ny, 8192), {5, 3}));
      const std::vector<MemoryPart> parts = memory_parts(window, threads);
      const std::byte *next = window.data();
      std::vector<double> bytes(threads.size(), 0);
      for (const MemoryPart &part : parts) {
        ASSERT_EQ(part.data, next);
        ASSERT_EQ(static_cast<std::size_t>(part.data - window.data()) % AlignedMemory::huge_bytes, 0u);
        next += part.size;
        bytes[part.node] += static_cast<double>(part.size);
      }
      ASSERT_EQ(next, window.data() + window.size());
      const double sum = std::accumulate(threads.begin(), threads.end(), 0.0);
      // each end of a part may be up to half a huge page from its ideal place
      for (std::size_t i = 0; i < threads.size(); ++i)
        EXPECT_NEAR(bytes[i], static_cast<double>(window.size()) * threads[i] / sum, 9.0 * 2 * mebibyte);
    }
}

// The memory of each row should be on the node that owns the row.
TEST(Ownership, RowsLieInTheMemoryOfTheirOwner) {
  const Window window(grid_of(5000, 8192), rings_of(grid_of(5000, 8192), {5, 3}));
  for (const Counts &threads : all_nodes) {
    const std::vector<MemoryPart> parts = memory_parts(window, threads);
    const std::vector<long> rows = first_rows(window, threads);
    long near = 0, far = 0;
    for (const std::size_t ring : {0, 1})
      for (long z = 0; z < window.ring(ring).planes(); ++z)
        for (long y = 0; y < 5000; ++y) {
          const std::byte *row = window.cell(ring, z, y, 0);
          const auto part = std::upper_bound(parts.begin(), parts.end(), row,
                                             [](const std::byte *at, const MemoryPart &p) { return at < p.data; }) -
                            1;
          ++(part->node == owner_of(y, rows) ? near : far);
        }
    const long most = 8 * 128 * static_cast<long>(threads.size() + 1);  // 128 rows are half a huge page
    EXPECT_LE(far, threads.size() == 1 ? 0 : most);
    EXPECT_GT(near, 4 * far);
  }
}

TEST(Ownership, PartsSmallerThanAHugePageAreNotCut) {
  EXPECT_TRUE(memory_parts(Window(grid_of(100, 4096), rings_of(grid_of(100, 4096), {3, 3})), {1, 1}).empty());
  EXPECT_TRUE(memory_parts(Window(grid_of(4096, 4096), rings_of(grid_of(4096, 4096), {3, 3})), Counts(9, 1)).empty());
  EXPECT_FALSE(memory_parts(Window(grid_of(4096, 4096), rings_of(grid_of(4096, 4096), {3, 3})), Counts(8, 1)).empty());
}

// The memory of a window can be placed in two ways. Either each node owns a part of the window, or successive pages
// belong to alternating nodes. The nodes of this test are synthetic, but the memory comes from a real node of this
// machine.
TEST(Ownership, EveryByteOfAPlacedWindowIsZeroAndUsable) {
  for (const std::size_t pitch : {std::size_t{64}, std::size_t{4096}})
    for (const Counts &threads : all_nodes) {
      ThreadPlacement placement{{}, threads, Counts(threads.size(), 0), false};
      for (unsigned node = 0; node < threads.size(); ++node)
        for (unsigned i = 0; i < threads[node] && i < 2; ++i) placement.threads.push_back({node, 0});
      Team team(placement);
      const Window window(grid_of(4096, pitch), rings_of(grid_of(4096, pitch), {2, 1}));
      place_memory(window, team);
      std::size_t others = 0;
      for (std::size_t at = 0; at < window.size(); at += 64) others += window.data()[at] != std::byte{0};
      EXPECT_EQ(others, 0u);
    }
}

// This test checks that each page is on the node that owns the page. On a machine with one NUMA node, this test always
// passes.
TEST(Ownership, PagesLieOnTheirOwnersNode) {
  ThreadPlacement placement;
  try {
    placement = place_threads(system_topology().nodes.size() > 1 ? 4 : 2, Bind::cores);
  } catch (const InputError &error) {
    GTEST_SKIP() << error.what();
  }
  Team team(placement);
  const Window window(grid_of(4096, 4096), rings_of(grid_of(4096, 4096), {4, 3}));
  place_memory(window, team);
  if (node_of_page(window.data()) < 0) GTEST_SKIP() << "the system does not tell where pages lie";
  for (const MemoryPart &part : memory_parts(window, placement.node_threads))
    for (std::size_t at = 0; at < part.size; at += AlignedMemory::page_bytes)
      ASSERT_EQ(node_of_page(part.data + at), static_cast<int>(placement.node_indices[part.node]));
}

// Returns a ratio: the time until all tiles are finished, divided by the time that the tiles would take if no thread
// waited. Each tile takes one unit of time.
double time_taken(const std::vector<Tile> &tiles, const std::vector<long> &rows, const Counts &node_threads) {
  std::vector<unsigned> owners, node_of;
  for (const Tile &tile : tiles) owners.push_back(owner_of((tile.y_low + tile.y_high) / 2, rows));
  for (unsigned node = 0; node < node_threads.size(); ++node) node_of.insert(node_of.end(), node_threads[node], node);
  NodeQueues queues(static_cast<unsigned>(node_threads.size()), owners);
  std::vector<std::size_t> item(node_of.size(), NodeQueues::none);
  std::vector<bool> finished(tiles.size(), false);
  std::size_t left = tiles.size(), time = 0;
  for (; left > 0; ++time) {
    std::vector<std::size_t> done;
    for (std::size_t i = 0; i < item.size(); ++i) {
      if (item[i] == NodeQueues::none) item[i] = queues.take(node_of[i]);
      if (item[i] == NodeQueues::none) continue;
      const auto &needs = tiles[item[i]].needs;
      if (std::all_of(needs.begin(), needs.end(), [&](std::size_t need) { return finished[need]; }))
        done.push_back(std::exchange(item[i], NodeQueues::none));
    }
    for (const std::size_t i : done) finished[i] = true;
    left -= done.size();
  }
  return static_cast<double>(time * item.size()) / static_cast<double>(tiles.size());
}

// The threads of each node must begin each diagonal of tiles at the rows of their node. If all nodes began at row 0,
// each node would wait at its lower edge until the node below has almost finished.
TEST(Ownership, NodesDoNotWaitForEachOther) {
  for (const Counts &threads : {Counts{2, 2}, Counts{8, 8}, Counts{4, 4, 4}, Counts(4, 8), Counts(8, 8), Counts{6, 4}})
    for (const long levels : {16, 48, 128}) {
      const unsigned sum = std::accumulate(threads.begin(), threads.end(), 0U);
      const long diamond = 8, ny = sum * 16 * diamond;
      const std::vector<long> rows = first_rows(Window(grid_of(ny, 64), rings_of(grid_of(ny, 64), {2, 1})), threads);
      const auto begun_at = [&](const std::vector<long> &begin) {
        return time_taken(diamond_tiles(levels, ny, 1, diamond, threads[0], begin), rows, threads);
      };
      EXPECT_LT(begun_at(rows_to_begin_at(rows)), 1.1) << threads.size() << " nodes, " << levels << " levels";
      if (threads.size() == 8 && levels > 16) {
        EXPECT_GT(begun_at({0}), 3);
      }
    }
}

TEST(NodeQueues, OwnItemsComeFirstAndInOrder) {
  NodeQueues queues(2, {0, 0, 1, 1, 0, 1, 0, 1, 0, 1});
  const auto taken = [&](unsigned node, int count) {
    std::vector<std::size_t> items;
    for (int i = 0; i < count; ++i) items.push_back(queues.take(node));
    return items;
  };
  EXPECT_EQ(taken(1, 2), (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(taken(0, 7), (std::vector<std::size_t>{0, 1, 4, 6, 8, 5, 7}));
  EXPECT_EQ(taken(1, 2), (std::vector<std::size_t>{9, NodeQueues::none}));
  EXPECT_EQ(queues.take(0), NodeQueues::none);
  queues.restart();
  EXPECT_EQ(queues.take_own(1), 2u);
  EXPECT_EQ(taken(0, 1), (std::vector<std::size_t>{0}));
}

TEST(NodeQueues, ThreadsTakeEveryItemOnce) {
  std::vector<unsigned> owners(20000);
  for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<unsigned>(i % 7 % 3);
  NodeQueues queues(3, owners);
  std::vector<std::atomic<int>> taken(owners.size());
  Team team(5);
  team.run([&](unsigned member) {
    for (std::size_t i = queues.take(member % 3); i != NodeQueues::none; i = queues.take(member % 3)) ++taken[i];
  });
  for (const auto &times : taken) ASSERT_EQ(times.load(), 1);
}

}  // namespace
}  // namespace outcrop
