// Divides a slab into tiles that fit a cache. If the grid has many rows, a tile is a range of levels and rows. A thread
// updates the tile plane by plane along the streaming axis. If the grid has few rows, a tile is a range of levels and
// zeta.
//
// Diamonds (after Bondhugula and Malas): the tiles of row q have their centres at level q*D. The centres are 2*r*D rows
// apart, and odd rows of tiles are shifted by r*D. A tile has the rows with |y - centre| < r*(D - |level - q*D|). A
// tile needs only the two tiles below that touch it, and waits only for these two tiles. So no barrier is needed
// between the rows of tiles:
//
//     level
//      2D   |\    /\    /\    /|     q = 2
//           | \  /  \  /  \  / |
//       D   |  \/    \/    \/  |     q = 1
//           |  /\    /\    /\  |
//       0   | /  \  /  \  /  \ |     q = 0
//           0   r*D  2r*D ...   y
//
// Threads take tiles along diagonals that lean to lower y. So the tiles of row q + 1 use the data that the tiles of row
// q have left in the last-level cache. The cache has not evicted these data yet. Without this reuse of data, thin slabs
// are slow. If p counts half tiles in y, the diagonals are p + lean*q = constant. With the chosen lean, about 2 *
// `threads` tiles lie between a tile and the tiles that it needs. For example, threads take tiles in the order of these
// numbers if the lean is 3:
//
//     q = 2       3    6
//     q = 1     1    4    7
//     q = 0   0    2    5   ...
//
// If several nodes own parts of the rows (team.hpp), each node updates its own part. At the edge between two parts,
// either both nodes begin or both nodes end. So the tiles on both sides of an edge are updated at about the same time,
// and no node waits long for another node. Diagonals begin at every second edge, and each diagonal leans to the nearest
// row at which diagonals begin:
//
//     node 0 | node 1 | node 2 | node 3
//      <------ ------> <------ ------>
//
// Bands are for grids with too few rows for several diamonds (a grid of two axes has one row). A tile has some levels
// and all rows of a chunk of the skewed coordinate zeta = z + skew*(level - 1). An update reads values with a lower
// level and with the same or a lower zeta. An update also overwrites a value. The earlier updates that have read this
// value also have a lower level and the same or a lower zeta. So a tile needs only two tiles: the previous tile in its
// band, and the tile below. These two tiles wait for earlier tiles in the same way. So all tiles with lower bands and
// lower chunks are finished. The tiles of a diagonal are independent. Threads take tiles in the order of these numbers:
//
//     level   | 3 : 4 : 5 : 6
//     band 1  +---+---+---+---
//     band 0  | 1 : 2 : 3 : 4
//               chunks     zeta
//
// In a grid with many bands, only a strip of 2 * `threads` bands advances at once. So each band uses data that the band
// below has left in the last-level cache. A strip begins while the strip before it ends.
//
// Sweeps (D = 0) update the levels one after another. Each level is divided into blocks of rows, or into chunks of zeta
// if the grid has few rows. The blocks of a level do not wait for each other. Sweeps update cells in the same order as
// plain loops, and exist only for comparison.
//
// Every tile is a pair of trapezoids. At each level, the tile has the rows [y_low + slope*|level - centre|, y_high -
// slope*|level - centre|) at zeta_low <= zeta < zeta_high. In these bounds, zeta is counted from the beginning of the
// slab.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace outcrop {

struct Tile {
  long level_first = 0, level_last = 0;  ///< inclusive
  long centre = 0;                       ///< the level at which the tile has its maximum number of rows
  long y_low = 0, y_high = 0;            ///< rows y_low <= y < y_high at that level; they may lie outside the grid
  long slope = 0;                        ///< each side loses this number of rows per level away from the centre
  /// zeta_low <= zeta < zeta_high, counted from the first zeta of the slab
  long zeta_low = 0, zeta_high = std::numeric_limits<int>::max();
  std::vector<std::size_t> needs{};  ///< the tiles that must be finished before this one
};

/// Returns diamonds for the levels 1 to `levels` and for `rows` rows. In the result, a tile comes after the tiles that
/// it needs. `diamond` is the size D of the diamonds, at least 1. An update reads values of the level below that are up
/// to `skew` rows away. `threads` is the number of threads that share the tiles between two edges. `begin` has the rows
/// at which diagonals begin: at least one row, in ascending order.
std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond, unsigned threads,
                                const std::vector<long> &begin = {0});

/// The division of a slab into chunks of zeta.
struct Chunks {
  long count = 1;
  long zetas = 1;    ///< number of values of zeta in each chunk
  long at_once = 1;  ///< maximum number of chunks that contain planes of the same level
};

/// Returns the tiles of bands. A tile has `height` levels and all `rows` rows of a chunk. In the result, a tile comes
/// after the tiles that it needs.
std::vector<Tile> band_tiles(long levels, long rows, long height, const Chunks &chunks, unsigned threads);

/// Returns tiles that have one level and all `rows` rows of a chunk. An update reads values of the level below that are
/// up to `skew` planes away.
std::vector<Tile> chunk_sweep_tiles(long levels, long rows, long skew, const Chunks &chunks);

/// Returns tiles that have one level and `rows_per_block` rows.
std::vector<Tile> sweep_tiles(long levels, long rows, long skew, long rows_per_block);

}  // namespace outcrop
