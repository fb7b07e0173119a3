#include "outcrop/exec/tiles.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

namespace outcrop {

namespace {

// The place of a tile in the lattice of diamonds. q is the level of the tile's centre, divided by the size D of the
// diamonds. p is the distance between the tile's centre and the first row of the grid, in units of half a tile.
struct LatticePoint {
  long q, p;
};

// Returns the lean of the diagonals. On a diagonal, p + lean*q is constant. A diagonal has a tile at about every second
// value of q. With the returned lean, threads take about 2 * `threads` other tiles after the last tile that a tile
// needs and before the tile itself. The lean is odd, so no tile of a diagonal needs another tile of the same diagonal.
long lean_of(long levels, long diamond, unsigned threads) {
  const long rows_of_tiles = levels / diamond + 1;
  return 1 + 2 * ((2 * static_cast<long>(threads) + rows_of_tiles - 1) / rows_of_tiles);
}

// Returns the distance between a tile at position p and the nearest row at which diagonals begin. The position and the
// distance are counted in half tiles. The distances of two neighbouring positions differ by at most one. So a tile
// comes after the tiles that it needs, whatever rows `begin` lists.
long distance(long p, long half, const std::vector<long> &begin) {
  long nearest = std::numeric_limits<long>::max();
  for (const long row : begin) {
    const long first = (row + half / 2) / half;
    nearest = std::min(nearest, p >= first ? p - first : first - 1 - p);
  }
  return nearest;
}

std::vector<LatticePoint> places_in_order(long levels, long rows, long half, long diamond, long lean,
                                          const std::vector<long> &begin) {
  std::vector<LatticePoint> places;
  for (long q = 0; (q - 1) * diamond < levels; ++q) {
    if (q == 0 && diamond == 1) continue;  // the tiles with q = 0 have only level 0, which needs no update
    for (long p = q % 2; (p - 1) * half < rows; p += 2) places.push_back({q, p});
  }
  const auto key = [&](const LatticePoint &place) {
    return std::tuple(distance(place.p, half, begin) + lean * place.q, place.q, place.p);
  };
  std::ranges::sort(places, {}, key);
  return places;
}

struct BandChunk {
  long band, chunk;
};

// Returns the bands and chunks in the order in which threads take them. A strip consists of neighbouring bands
// (tiles.hpp). `stagger` delays each strip, so that no band of the strip overtakes the last band of the previous strip.
std::vector<BandChunk> bands_in_order(long bands, const Chunks &chunks, unsigned threads) {
  const long strip = std::min(bands, 2 * static_cast<long>(threads));
  const long stagger = std::max(strip, chunks.at_once);
  std::vector<BandChunk> places;
  for (long band = 0; band < bands; ++band)
    for (long chunk = 0; chunk < chunks.count; ++chunk) places.push_back({band, chunk});
  const auto key = [&](const BandChunk &place) {
    return std::pair(place.band / strip * stagger + place.band % strip + place.chunk, place.band);
  };
  std::ranges::sort(places, {}, key);
  return places;
}

// Returns a tile with all rows of a chunk. The last chunk ends where the slab ends.
Tile chunk_tile(long level_first, long level_last, long rows, const Chunks &chunks, long chunk) {
  Tile tile{level_first, level_last, level_first, 0, rows};
  tile.zeta_low = chunk * chunks.zetas;
  if (chunk + 1 < chunks.count) tile.zeta_high = tile.zeta_low + chunks.zetas;
  return tile;
}

// Returns `count` tiles for each level. The function make(level, i) makes tile i of a level. Tile i of a level needs
// several tiles of the level below: the tiles i - reach_down to i + reach_up.
template <typename Make>
std::vector<Tile> level_by_level(long levels, long count, long reach_down, long reach_up, const Make &make) {
  std::vector<Tile> tiles;
  for (long level = 1; level <= levels; ++level)
    for (long i = 0; i < count; ++i) {
      Tile &tile = tiles.emplace_back(make(level, i));
      if (level > 1)
        for (long below = std::max(0L, i - reach_down); below <= std::min(count - 1, i + reach_up); ++below)
          tile.needs.push_back(static_cast<std::size_t>((level - 2) * count + below));
    }
  return tiles;
}

}  // namespace

std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond, unsigned threads,
                                const std::vector<long> &begin) {
  assert(levels >= 1 && rows >= 1 && skew >= 1 && diamond >= 1 && threads >= 1 && !begin.empty());
  const long half = skew * diamond;  // half the number of rows of a tile
  std::vector<Tile> tiles;
  // for each lattice point (q, p), the index of its tile in `tiles`
  std::map<std::pair<long, long>, std::size_t> index;
  for (const auto [q, p] : places_in_order(levels, rows, half, diamond, lean_of(levels, diamond, threads), begin)) {
    const long centre = q * diamond, y = p * half;
    Tile tile{
        std::max(1L, centre - diamond + 1), std::min(levels, centre + diamond - 1), centre, y - half, y + half, skew};
    for (const long below : {p - 1, p + 1})
      if (const auto found = index.find({q - 1, below}); found != index.end()) tile.needs.push_back(found->second);
    index[{q, p}] = tiles.size();
    tiles.push_back(std::move(tile));
  }
  return tiles;
}

std::vector<Tile> band_tiles(long levels, long rows, long height, const Chunks &chunks, unsigned threads) {
  assert(levels >= 1 && rows >= 1 && height >= 1 && chunks.count >= 1 && chunks.zetas >= 1 && threads >= 1);
  const long bands = (levels + height - 1) / height;
  std::vector<Tile> tiles;
  std::vector<std::size_t> index(static_cast<std::size_t>(bands * chunks.count));
  const auto at = [&](long band, long chunk) -> std::size_t & {
    return index[static_cast<std::size_t>(band * chunks.count + chunk)];
  };
  for (const auto [band, chunk] : bands_in_order(bands, chunks, threads)) {
    const long below = band * height;
    Tile tile = chunk_tile(below + 1, std::min(levels, below + height), rows, chunks, chunk);
    if (band > 0) tile.needs.push_back(at(band - 1, chunk));
    if (chunk > 0) tile.needs.push_back(at(band, chunk - 1));
    at(band, chunk) = tiles.size();
    tiles.push_back(std::move(tile));
  }
  return tiles;
}

std::vector<Tile> chunk_sweep_tiles(long levels, long rows, long skew, const Chunks &chunks) {
  assert(levels >= 1 && rows >= 1 && skew >= 1 && chunks.count >= 1 && chunks.zetas >= 1);
  // Plane z of a level needs plane z - skew of the level below. If the value of plane z is zeta, the value of the
  // needed plane is zeta - 2 * skew.
  const long reach = (2 * skew + chunks.zetas - 1) / chunks.zetas;
  return level_by_level(levels, chunks.count, reach, 0,
                        [&](long level, long chunk) { return chunk_tile(level, level, rows, chunks, chunk); });
}

std::vector<Tile> sweep_tiles(long levels, long rows, long skew, long rows_per_block) {
  assert(levels >= 1 && rows >= 1 && skew >= 1 && rows_per_block >= 1);
  const long count = (rows + rows_per_block - 1) / rows_per_block;
  // maximum distance, in blocks of rows, at which an update reads
  const long reach = (skew + rows_per_block - 1) / rows_per_block;
  return level_by_level(levels, count, reach, reach, [&](long level, long i) {
    const long y = i * rows_per_block;
    return Tile{level, level, level, y, std::min(rows, y + rows_per_block), 0};
  });
}

}  // namespace outcrop
