// These tests check how a slab of few rows is divided into chunks of zeta. Every zeta of every level must be updated
// exactly once. A tile must wait for all tiles whose values it reads or overwrites. A tile must not wait for any other
// tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "outcrop/exec/tiles.hpp"

namespace outcrop {
namespace {

struct ChunkCut {
  std::string name;
  long levels, zetas, skew;
  std::vector<Tile> tiles;
};

std::vector<ChunkCut> all_cuts() {
  std::vector<ChunkCut> cuts;
  for (long levels : {1, 2, 3, 5, 8, 13})
    for (long count : {1, 2, 3, 7, 11})
      for (long zetas : {1, 2, 5}) {
        const std::string name = std::to_string(levels) + " levels, " + std::to_string(count) + " chunks of " +
                                 std::to_string(zetas) + " zetas";
        const Chunks chunks{count, zetas, std::max(1L, count / 2)};
        for (long skew : {1, 2, 4})
          cuts.push_back({name + ", sweeps, skew " + std::to_string(skew), levels, count * zetas, skew,
                          chunk_sweep_tiles(levels, 3, skew, chunks)});
        for (long height : {1, 2, 4, 20})
          for (unsigned threads : {1u, 2u, 5u})
            cuts.push_back(
                {name + ", bands of " + std::to_string(height) + " levels, threads " + std::to_string(threads), levels,
                 count * zetas, 2, band_tiles(levels, 3, height, chunks, threads)});
      }
  return cuts;
}

bool holds(const Tile &tile, long level, long zeta) {
  return level >= tile.level_first && level <= tile.level_last && zeta >= tile.zeta_low && zeta < tile.zeta_high;
}

// Returns the order of tiles. before[i][j] is true if tile j is finished before tile i begins.
std::vector<std::vector<bool>> orders_of(const std::vector<Tile> &tiles) {
  std::vector<std::vector<bool>> before(tiles.size(), std::vector<bool>(tiles.size(), false));
  for (std::size_t i = 0; i < tiles.size(); ++i)
    for (const std::size_t need : tiles[i].needs) {
      for (std::size_t j = 0; j < i; ++j)
        if (before[need][j]) before[i][j] = true;
      before[i][need] = true;
    }
  return before;
}

long owner_of(const std::vector<Tile> &tiles, long level, long zeta) {
  for (std::size_t i = 0; i < tiles.size(); ++i)
    if (holds(tiles[i], level, zeta)) return static_cast<long>(i);
  return -1;
}

// Returns true if every update waits for two kinds of earlier updates: updates whose values it reads, and updates that
// read the values that it overwrites. If an update waits for an update that is k levels lower, the distance between
// their planes is at most one skew. So the values of zeta of the two updates differ by skew*(k - 1) to skew*(k + 1).
// The number k can be large, because a copy of a field can be written at every second level, or only once in many
// stages.
bool waits_for_all(const ChunkCut &cut) {
  const auto before = orders_of(cut.tiles);
  std::vector<std::vector<long>> owners(static_cast<std::size_t>(cut.levels + 1));
  for (long level = 1; level <= cut.levels; ++level)
    for (long zeta = 0; zeta < cut.zetas; ++zeta)
      owners[static_cast<std::size_t>(level)].push_back(owner_of(cut.tiles, level, zeta));
  const auto owner = [&](long level, long zeta) {
    return static_cast<std::size_t>(owners[static_cast<std::size_t>(level)][static_cast<std::size_t>(zeta)]);
  };
  for (long level = 2; level <= cut.levels; ++level)
    for (long k = 1; k < level; ++k)
      for (long zeta = 0; zeta < cut.zetas; ++zeta)
        for (long other = std::max(0L, zeta - cut.skew * (k + 1)); other <= zeta - cut.skew * (k - 1); ++other) {
          const std::size_t own = owner(level, zeta), earlier = owner(level - k, other);
          if (own != earlier && !before[own][earlier]) return false;
        }
  return true;
}

TEST(BandTiles, CoverEveryZetaOfEveryLevelOnce) {
  for (const ChunkCut &cut : all_cuts())
    for (long level = 1; level <= cut.levels; ++level)
      for (long zeta = 0; zeta < cut.zetas; ++zeta) {
        const auto count = std::count_if(cut.tiles.begin(), cut.tiles.end(),
                                         [&](const Tile &tile) { return holds(tile, level, zeta); });
        ASSERT_EQ(count, 1) << cut.name << ": level " << level << " zeta " << zeta;
      }
}

// Threads take tiles in ascending order, so a tile must not wait for a later tile.
TEST(BandTiles, NeedOnlyEarlierTiles) {
  for (const ChunkCut &cut : all_cuts())
    for (std::size_t i = 0; i < cut.tiles.size(); ++i)
      for (const std::size_t need : cut.tiles[i].needs) ASSERT_LT(need, i) << cut.name;
}

TEST(BandTiles, WaitForAllTheyReadAndOverwrite) {
  for (const ChunkCut &cut : all_cuts()) ASSERT_TRUE(waits_for_all(cut)) << cut.name;
}

// A tile of a band waits for at most two tiles. A tile needs both waits. If one of the two waits is missing, an update
// begins too early.
TEST(BandTiles, WaitForNothingInVain) {
  const ChunkCut whole{"", 6, 12, 1, band_tiles(6, 1, 2, Chunks{3, 4, 3}, 2)};
  ASSERT_TRUE(waits_for_all(whole));
  for (std::size_t i = 0; i < whole.tiles.size(); ++i) {
    EXPECT_LE(whole.tiles[i].needs.size(), 2u);
    for (std::size_t need = 0; need < whole.tiles[i].needs.size(); ++need) {
      ChunkCut damaged = whole;
      auto &needs = damaged.tiles[i].needs;
      needs.erase(needs.begin() + static_cast<std::ptrdiff_t>(need));
      EXPECT_FALSE(waits_for_all(damaged)) << "tile " << i << " without need " << need;
    }
  }
}

// When a thread takes a tile, all tiles for which this tile must wait should already be finished.
TEST(BandTiles, ComeLongAfterThoseTheyNeed) {
  for (const unsigned threads : {1u, 2u, 4u, 16u}) {
    const auto tiles = band_tiles(8 * 64, 1, 8, Chunks{100, 32, 100}, threads);
    for (std::size_t i = tiles.size() / 4; i < tiles.size() * 3 / 4; ++i)  // diagonals are shorter at both ends
      for (const std::size_t need : tiles[i].needs) ASSERT_GE(i - need, threads) << "tile " << i;
  }
}

// Returns the time that threads need for all tiles if each tile takes one unit of time.
long units_of_time(const std::vector<Tile> &tiles, unsigned threads) {
  std::vector<long> free_at(threads, 0), finished;
  for (const Tile &tile : tiles) {
    long &thread = *std::min_element(free_at.begin(), free_at.end());
    for (const std::size_t need : tile.needs) thread = std::max(thread, finished[need]);
    finished.push_back(++thread);
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

// Bands must keep all threads busy. If there are at least as many bands as threads, a thread is idle only at the
// beginning and at the end.
TEST(BandTiles, KeepAllThreadsBusy) {
  for (const unsigned threads : {1u, 2u, 4u, 16u})
    for (const long bands : {1L, 2L, 5L}) {
      const auto tiles = band_tiles(bands * threads * 8, 1, 8, Chunks{8L * threads, 32, 8L * threads}, threads);
      const long ends = static_cast<long>(threads - 1);
      EXPECT_LE(units_of_time(tiles, threads), static_cast<long>(tiles.size() / threads) + ends)
          << bands << " bands for each of " << threads << " threads";
    }
}

}  // namespace
}  // namespace outcrop
