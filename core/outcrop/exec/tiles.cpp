#include "outcrop/exec/tiles.hpp"

#include <algorithm>
#include <cassert>

namespace outcrop {

std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond) {
  assert(levels >= 1 && rows >= 1 && skew >= 1 && diamond >= 1);
  const long half = skew * diamond;          // half the height of a tile in y
  const long count = rows / (2 * half) + 2;  // tiles of one row; the last ones may be empty
  std::vector<Tile> tiles;
  long previous = -1;  // index of the first tile of the row below
  for (long q = 0; (q - 1) * diamond < levels; ++q) {
    const long centre = q * diamond;
    const long level_first = std::max(1L, centre - diamond + 1);
    const long level_last = std::min(levels, centre + diamond - 1);
    if (level_first > level_last) continue;  // D = 1: row 0 holds nothing but level 0
    const long first = static_cast<long>(tiles.size());
    const bool odd = (q & 1) != 0;
    for (long i = 0; i < count; ++i) {
      const long y = (odd ? half : 0) + i * 2 * half;
      Tile tile{level_first, level_last, centre, y - half, y + half, skew, 0, 0};
      if (previous >= 0) {
        // An odd tile i stands on even tiles i and i + 1, an even one on odd tiles i - 1 and i.
        const long low = std::max(0L, odd ? i : i - 1), high = std::min(count - 1, odd ? i + 1 : i);
        tile.needs_first = previous + low;
        tile.needs_end = previous + high + 1;
      }
      tiles.push_back(tile);
    }
    previous = first;
  }
  return tiles;
}

std::vector<Tile> sweep_tiles(long levels, long rows, long rows_per_block) {
  assert(levels >= 1 && rows >= 1 && rows_per_block >= 1);
  const long count = (rows + rows_per_block - 1) / rows_per_block;
  std::vector<Tile> tiles;
  for (long level = 1; level <= levels; ++level)
    for (long i = 0; i < count; ++i) {
      const long y = i * rows_per_block;
      const long below = (level - 2) * count;  // first tile of the level before
      Tile tile{level, level, level, y, std::min(rows, y + rows_per_block), 0, 0, 0};
      if (level > 1) {
        tile.needs_first = below;
        tile.needs_end = below + count;
      }
      tiles.push_back(tile);
    }
  return tiles;
}

}  // namespace outcrop
