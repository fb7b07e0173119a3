// The division of a slab into tiles that fit a cache. With many rows, a tile covers levels and rows, and is swept along
// the streaming axis. With few rows, a tile covers levels and zeta.
//
// Diamonds (after Bondhugula and Malas): the tiles of row q have their centres at level q*D. They are 2*r*D rows apart,
// and odd rows of tiles are shifted by r*D. A tile holds the rows |y - centre| < r*(D - |level - q*D|).
//
//     level
//      2D   |\    /\    /\    /|     q = 2     a tile needs only the two tiles below it that touch it
//           | \  /  \  /  \  / |               and waits for those two alone: no barrier between the
//       D   |  \/    \/    \/  |     q = 1     rows of tiles
//           |  /\    /\    /\  |
//       0   | /  \  /  \  /  \ |     q = 0
//           0   r*D  2r*D ...   y
//
// Threads take tiles along diagonals that lean to lower y. So the tiles of row q + 1 use data that the tiles of row q
// have left in the last-level cache, before it is evicted. Thin slabs depend on that. With p counting half tiles in y,
// the diagonals are p + lean*q = constant. The lean puts about 2 * `threads` tiles between a tile and the tiles it
// needs:
//
//     q = 2       3    6           lean = 3: threads take tiles
//     q = 1     1    4    7        in the order of these numbers
//     q = 0   0    2    5   ...
//
// If several nodes own parts of the rows (team.hpp), each node works through its own part. Two neighbours either both
// begin or both end at the edge between them. So the tiles on both sides of an edge are updated at about the same time,
// and no node waits long for another:
//
//     node 0 | node 1 | node 2 | node 3          begin:  the rows where diagonals begin; they lean to the nearest
//      <------ ------> <------ ------>
//
// Bands are for grids with too few rows for several diamonds (a grid of two axes has one row). A tile holds some levels
// and all rows of a chunk of the skewed coordinate zeta = z + skew*(level - 1). The values that an update reads have a
// lower level, and a zeta that is not higher. The same holds for the updates that read a value that this update
// overwrites. So a tile needs the tile before it in its band and the tile below it. Through these it waits for all
// tiles that are lower in both. The tiles of a diagonal are independent:
//
//     level   | 3 : 4 : 5 : 6        Threads take tiles in the order of these numbers. If there are many bands,
//     band 1  +---+---+---+---       only a strip of 2 * `threads` bands advances at once, so that each band uses data
//     band 0  | 1 : 2 : 3 : 4        that the band below has left in the last-level cache. The next strip begins while
//               chunks     zeta      this one ends.
//
// Sweeps (D = 0) update one level after the other in blocks of rows, as plain code does. They are kept for comparison.
// With few rows the blocks are chunks of zeta. The blocks of a level do not wait for each other.
//
// A tile is a pair of trapezoids: the rows [y_low + slope*|level - centre|, y_high - slope*|level - centre|) at
// zeta_low <= zeta < zeta_high, with zeta counted from the beginning of the slab.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace outcrop {

struct Tile {
  long level_first = 0, level_last = 0;  ///< inclusive
  long centre = 0;                       ///< level at which the tile is widest
  long y_low = 0, y_high = 0;            ///< its rows at that level, half open; they may extend beyond the grid
  long slope = 0;                        ///< rows lost on each side per level away from the centre
  long zeta_low = 0, zeta_high = std::numeric_limits<int>::max();  ///< from the slab's first zeta on, half open
  std::vector<std::size_t> needs{};                                ///< the tiles that must be finished before this one
};

/// Tiles for levels 1 .. levels over `rows` rows. The tiles that a tile needs come before it. `diamond` is D >= 1.
/// Dependencies reach `skew` rows per level. `threads` is the number of threads that share the tiles between two edges.
/// `begin` has the rows at which diagonals begin: at least one, in ascending order.
std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond, unsigned threads,
                                const std::vector<long> &begin = {0});

/// The division of a slab into chunks of zeta.
struct Chunks {
  long count = 1;
  long zetas = 1;    ///< zetas of each chunk
  long at_once = 1;  ///< number of chunks that contain planes of the same level
};

/// Tiles of `height` levels and all `rows` of a chunk. The tiles that a tile needs come before it.
std::vector<Tile> band_tiles(long levels, long rows, long height, const Chunks &chunks, unsigned threads);

/// Tiles of one level and all `rows` of a chunk. Dependencies reach `skew` planes per level.
std::vector<Tile> chunk_sweep_tiles(long levels, long rows, long skew, const Chunks &chunks);

/// Tiles of one level and `rows_per_block` rows.
std::vector<Tile> sweep_tiles(long levels, long rows, long skew, long rows_per_block);

}  // namespace outcrop
