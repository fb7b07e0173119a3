// How a slab is cut for the cache: tiles in (level, row), each swept along the streaming axis.
//
// Diamonds (Bondhugula's and Malas' tiles, design.md section 4): tile rows q have their centres at level q*D, tiles are
// 2*r*D rows apart, and odd rows of tiles are shifted by r*D. A tile holds the rows |y - centre| < r*(D - |level - q*D|).
//
//     level
//      2D   |\    /\    /\    /|     q = 2     a tile needs only the two tiles below it that touch it,
//           | \  /  \  /  \  / |               so tiles are handed out in this order and wait for those two
//       D   |  \/    \/    \/  |     q = 1     alone: no barrier between the rows of tiles
//           |  /\    /\    /\  |
//       0   | /  \  /  \  /  \ |     q = 0
//           0   r*D  2r*D ...   y
//
// Sweeps (D = 0) update one level after the other in blocks of rows: what plain code does, kept for comparison.
// Either way a tile is a trapezoid pair: rows [y_low + slope*|level - centre|, y_high - slope*|level - centre|).
#pragma once

#include <vector>

namespace outcrop {

struct Tile {
  long level_first = 0, level_last = 0;  ///< inclusive
  long centre = 0;                       ///< level at which the tile is widest
  long y_low = 0, y_high = 0;            ///< its rows there, half open; may stick out of the grid
  long slope = 0;                        ///< rows lost on each side per level away from the centre
  long needs_first = 0, needs_end = 0;   ///< tiles that must be finished before, half open range of indices
};

/// Tiles for levels 1 .. levels over `rows` rows, in an order in which every tile's needs come before it.
/// `diamond` = D >= 1. Dependencies reach `skew` rows per level.
std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond);

/// One level at a time, blocks of `rows_per_block` rows.
std::vector<Tile> sweep_tiles(long levels, long rows, long rows_per_block);

}  // namespace outcrop
