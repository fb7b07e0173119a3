// These tests check how a slab is divided into tiles. Every row of every level must be updated exactly once. A tile
// waits directly for only a few tiles. The few tiles for which a tile waits directly wait for further tiles. Before a
// tile begins, all tiles whose rows it reads or overwrites must be finished.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "outcrop/exec/tiles.hpp"

namespace outcrop {
namespace {

struct Cut {
  std::string name;
  long levels, rows, reach;
  std::vector<Tile> tiles;
};

std::vector<Cut> all_cuts() {
  std::vector<Cut> cuts;
  for (long levels : {1, 2, 3, 4, 5, 7, 12, 17})
    for (long rows : {1, 2, 3, 5, 8, 13, 31, 64})
      for (long skew : {1, 2, 3}) {
        const std::string name =
            std::to_string(levels) + " levels of " + std::to_string(rows) + " rows, skew " + std::to_string(skew);
        for (long diamond : {1, 2, 3, 4, 8, 20})
          for (unsigned threads : {1u, 2u, 9u})
            cuts.push_back({name + ", diamond " + std::to_string(diamond) + ", threads " + std::to_string(threads),
                            levels, rows, skew, diamond_tiles(levels, rows, skew, diamond, threads)});
        for (long diamond : {1, 3, 8})
          for (const std::vector<long> &begin :
               {std::vector<long>{rows / 2}, std::vector<long>{0, rows / 3}, std::vector<long>{rows / 4, rows - 1}})
            cuts.push_back({name + ", diamond " + std::to_string(diamond) + ", begun at " +
                                std::to_string(begin.size()) + " rows from " + std::to_string(begin[0]),
                            levels, rows, skew, diamond_tiles(levels, rows, skew, diamond, 2, begin)});
        for (long block : {1, 3, 16, 100})
          cuts.push_back({name + ", blocks of " + std::to_string(block), levels, rows, skew,
                          sweep_tiles(levels, rows, skew, block)});
      }
  return cuts;
}

bool holds(const Tile &tile, long level, long y) {
  const long inset = tile.slope * std::labs(level - tile.centre);
  return level >= tile.level_first && level <= tile.level_last && y >= tile.y_low + inset && y < tile.y_high - inset;
}

// Returns the number of the tile that updates each row. owners[level][row] is -1 if no tile updates the row.
std::vector<std::vector<long>> owners_of(const Cut &cut) {
  const auto rows = static_cast<std::size_t>(cut.rows), levels = static_cast<std::size_t>(cut.levels);
  std::vector<std::vector<long>> owners(levels + 1, std::vector<long>(rows, -1));
  for (std::size_t i = 0; i < cut.tiles.size(); ++i)
    for (std::size_t level = 1; level <= levels; ++level)
      for (std::size_t y = 0; y < rows; ++y)
        if (holds(cut.tiles[i], static_cast<long>(level), static_cast<long>(y)))
          owners[level][y] = static_cast<long>(i);
  return owners;
}

TEST(Tiles, CoverEveryRowOfEveryLevelOnce) {
  for (const Cut &cut : all_cuts())
    for (long level = 1; level <= cut.levels; ++level)
      for (long y = 0; y < cut.rows; ++y) {
        int count = 0;
        for (const Tile &tile : cut.tiles) count += holds(tile, level, y) ? 1 : 0;
        ASSERT_EQ(count, 1) << cut.name << ": level " << level << " row " << y;
      }
}

// Threads take tiles in ascending order, so a tile must not wait for a later tile.
TEST(Tiles, NeedOnlyEarlierTiles) {
  for (const Cut &cut : all_cuts())
    for (std::size_t i = 0; i < cut.tiles.size(); ++i)
      for (const std::size_t need : cut.tiles[i].needs) ASSERT_LT(need, i) << cut.name;
}

// The update of row y at level t reads the rows y - r .. y + r of level t - 1, and overwrites row y of level t - 2. The
// overwritten row was read by updates of level t - 1. The updates of level t - 1 that read the overwritten row wrote
// the same rows y - r .. y + r. So the test has to check only one condition. Each row y - r .. y + r of level t - 1
// must belong to the same tile, or to a tile that is finished before this tile begins.
TEST(Tiles, WaitForAllTheyReadAndOverwrite) {
  for (const Cut &cut : all_cuts()) {
    std::vector<std::vector<bool>> before(cut.tiles.size(), std::vector<bool>(cut.tiles.size(), false));
    for (std::size_t i = 0; i < cut.tiles.size(); ++i)
      for (const std::size_t need : cut.tiles[i].needs) {
        const auto &further = before[need];
        for (std::size_t j = 0; j < i; ++j)
          if (further[j]) before[i][j] = true;
        before[i][need] = true;
      }
    const auto owners = owners_of(cut);
    for (long level = 2; level <= cut.levels; ++level)
      for (long y = 0; y < cut.rows; ++y)
        for (long other = std::max(0L, y - cut.reach); other <= std::min(cut.rows - 1, y + cut.reach); ++other) {
          const long own = owners[static_cast<std::size_t>(level)][static_cast<std::size_t>(y)];
          const long read = owners[static_cast<std::size_t>(level - 1)][static_cast<std::size_t>(other)];
          ASSERT_TRUE(own == read || before[static_cast<std::size_t>(own)][static_cast<std::size_t>(read)])
              << cut.name << ": row " << y << " of level " << level << " (tile " << own << ") does not wait for row "
              << other << " (tile " << read << ")";
        }
  }
}

// A diamond waits for at most two tiles: the tiles below the diamond. So several diamonds can be updated at the same
// time.
TEST(Tiles, DiamondsWaitForTwoAtMost) {
  for (const Tile &tile : diamond_tiles(40, 200, 2, 5, 4)) EXPECT_LE(tile.needs.size(), 2u);
}

// When a thread takes a tile, all tiles for which this tile must wait should already be finished.
TEST(Tiles, DiamondsComeLongAfterThoseTheyNeed) {
  for (const unsigned threads : {1u, 2u, 4u, 16u}) {
    const auto tiles = diamond_tiles(30, 4000, 1, 8, threads);
    for (std::size_t i = tiles.size() / 4; i < tiles.size() * 3 / 4; ++i)  // diagonals are shorter at both ends
      for (const std::size_t need : tiles[i].needs) EXPECT_GE(i - need, 2 * threads) << "tile " << i;
  }
}

// Two nodes begin at row 500. One node continues with lower rows, and the other node continues with higher rows. The
// two nodes must update rows at about the same speed, so that they do not wait for each other.
TEST(Tiles, NeighboursAreEquallyFarFromTheirEdge) {
  const auto tiles = diamond_tiles(30, 1000, 1, 8, 4, {500});
  long low = 0, high = 0, most = 0;
  for (const Tile &tile : tiles) {
    ++((tile.y_low + tile.y_high) / 2 < 500 ? low : high);
    most = std::max(most, std::labs(low - high));
  }
  EXPECT_LE(most, 8) << "of " << tiles.size() << " tiles";
}

}  // namespace
}  // namespace outcrop
