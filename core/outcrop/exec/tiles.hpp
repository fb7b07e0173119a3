// How a slab is cut for the cache: into tiles in (level, row), each swept along the streaming axis, or, where there are few
// rows, into tiles in (level, zeta).
//
// Diamonds (Bondhugula's and Malas' tiles, design.md section 4): tile rows q have their centres at level q*D, tiles are
// 2*r*D rows apart, and odd rows of tiles are shifted by r*D. A tile holds the rows |y - centre| < r*(D - |level - q*D|).
//
//     level
//      2D   |\    /\    /\    /|     q = 2     a tile needs only the two tiles below it that touch it
//           | \  /  \  /  \  / |               and waits for those two alone: no barrier between the
//       D   |  \/    \/    \/  |     q = 1     rows of tiles
//           |  /\    /\    /\  |
//       0   | /  \  /  \  /  \ |     q = 0
//           0   r*D  2r*D ...   y
//
// Tiles are handed out along diagonals that lean to lower y. So the tiles of the next q use what the tiles of one q leave in
// the last-level cache before it is evicted. Thin slabs depend on that. With p counting half tiles in y, the diagonals are
// p + lean*q = constant. The lean keeps a tile and those it needs about 2 * `threads` tiles apart:
//
//     q = 2       3    6           lean = 3: tiles are handed out
//     q = 1     1    4    7        in the order of these numbers
//     q = 0   0    2    5   ...
//
// If several nodes own parts of the rows (team.hpp), each node works through its own part. Two neighbours both begin or both
// end at the edge between them. So tiles on both sides of an edge are updated at about the same time, and no node waits long
// for another one:
//
//     node 0 | node 1 | node 2 | node 3          begin:  the rows where diagonals begin; they lean to the nearest
//      <------ ------> <------ ------>
//
// Bands are for too few rows for diamonds beside each other (a grid of two axes has one row). A tile holds some levels and all
// rows of a chunk of the skewed coordinate zeta = z + skew*(level - 1). The values that an update reads, and the updates that
// read a value it overwrites, have a lower level and a zeta that is not higher. So a tile needs the one before it in its band
// and the one below it, and through these all that are lower in both. The tiles of a diagonal are independent:
//
//     level   | 3 : 4 : 5 : 6        tiles are handed out in the order of these numbers. Of many bands only a strip
//     band 1  +---+---+---+---       of 2 * `threads` goes along at once, so that what a band leaves in the
//     band 0  | 1 : 2 : 3 : 4        last-level cache is used by the next one; the next strip begins while this one ends
//               chunks     zeta
//
// Sweeps (D = 0) update one level after the other in blocks of rows, as plain code does; they are kept for comparison. With
// few rows the blocks are chunks of zeta. The blocks of a level do not wait for each other.
//
// A tile is a trapezoid pair: rows [y_low + slope*|level - centre|, y_high - slope*|level - centre|), at
// zeta_low <= zeta < zeta_high, counted from the beginning of its slab.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace outcrop {

struct Tile {
  long level_first = 0, level_last = 0;  ///< inclusive
  long centre = 0;                       ///< level at which the tile is widest
  long y_low = 0, y_high = 0;            ///< its rows there, half open; may stick out of the grid
  long slope = 0;                        ///< rows lost on each side per level away from the centre
  long zeta_low = 0, zeta_high = std::numeric_limits<int>::max();  ///< from the slab's first zeta on, half open
  std::vector<std::size_t> needs{};                                ///< tiles that must be finished before
};

/// Tiles for levels 1 .. levels over `rows` rows, in an order in which every tile's needs come before it.
/// `diamond` = D >= 1. Dependencies reach `skew` rows per level. `threads` take tiles in turn between two edges. `begin` are
/// the rows, at least one, in ascending order, at which diagonals begin.
std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond, unsigned threads,
                                const std::vector<long> &begin = {0});

/// How the zetas of a slab are cut.
struct Chunks {
  long count = 1;
  long zetas = 1;    ///< of each
  long at_once = 1;  ///< the number of chunks that have planes of one level
};

/// Tiles of `height` levels and all `rows` of a chunk, in an order in which every tile's needs come before it.
std::vector<Tile> band_tiles(long levels, long rows, long height, const Chunks &chunks, unsigned threads);

/// One level at a time, all `rows` of a chunk; dependencies reach `skew` planes per level.
std::vector<Tile> chunk_sweep_tiles(long levels, long rows, long skew, const Chunks &chunks);

/// One level at a time, blocks of `rows_per_block` rows.
std::vector<Tile> sweep_tiles(long levels, long rows, long skew, long rows_per_block);

}  // namespace outcrop
