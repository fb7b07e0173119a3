// Divides a slab into tiles that fit into a cache. If the grid has many rows, a tile is a range of levels and rows. A
// thread updates the tile plane by plane along the streaming axis. If the grid has few rows, a tile is a range of
// levels and a range of the skewed coordinate zeta (traverse.hpp).
//
// Diamonds (after Bondhugula and Malas): a tile is a diamond of levels and rows of the grid. D is the size of the
// diamonds, and r is the largest distance, in rows, at which an update reads. The tiles form a lattice. The tiles with
// the lattice index q have their centres at level q*D. The centres of tiles with the same q are 2*r*D rows of the grid
// apart. If q is odd, the centres are shifted by r*D rows. At each level, a tile has the rows y with |y - centre| <
// r*(D - |level - q*D|). A tile needs only the two tiles that touch it from below. So no barrier is necessary between
// tiles with different q:
//
//     level
//      2D   |\    /\    /\    /|     q = 2
//           | \  /  \  /  \  / |
//       D   |  \/    \/    \/  |     q = 1
//           |  /\    /\    /\  |
//       0   | /  \  /  \  /  \ |     q = 0
//           0   r*D  2r*D ...   y
//
// Threads take tiles along diagonals that lean to lower y. So when a thread updates a tile, the last-level cache still
// holds the data of the two tiles below this tile. If the data came from memory instead, updates of thin slabs would be
// slow. Let p be the position of a tile in y, in units of half a tile. On a diagonal, p + lean*q is constant. With the
// chosen lean, threads take about 2 * `threads` other tiles after the last tile that a tile needs and before the tile
// itself. For example, with a lean of 3, threads take the tiles in the order of these numbers:
//
//     q = 2       3    6
//     q = 1     1    4    7
//     q = 0   0    2    5   ...
//
// If several nodes own parts of the rows (team.hpp), each node updates its own part. Diagonals begin at every second
// edge between two parts. Each diagonal leans to the nearest edge at which diagonals begin. So the two nodes at an edge
// either both begin or both end their updates at this edge. The tiles on the two sides of an edge are updated at about
// the same time, and no node waits long for another node:
//
//     node 0 | node 1 | node 2 | node 3
//      <------ ------> <------ ------>
//
// Bands: if the grid has too few rows for several diamonds, the slab is divided into bands of levels. An example is a
// grid with two axes, whose planes have one row each. Each band is divided into tiles along the skewed coordinate zeta
// = z + skew*(level - 1). A tile of a band has all rows and one range of zeta, which is called a chunk. An update reads
// values with a lower level and with the same or a lower zeta. An update also overwrites an old value, so all updates
// that read the old value must be finished before. The updates that read the old value also have a lower level and the
// same or a lower zeta. A tile waits for only two tiles: the previous tile in its band, and the tile with the same
// chunk in the band below. Each of the awaited tiles has waited for two tiles in the same way. So when a tile begins,
// every other tile whose band and chunk are the same or lower is finished. In the drawing, tiles with the same number
// do not depend on each other. Threads take tiles in the order of these numbers:
//
//     level   | 3 : 4 : 5 : 6
//     band 1  +---+---+---+---
//     band 0  | 1 : 2 : 3 : 4
//               chunks     zeta
//
// If a slab has many bands, threads update a strip of 2 * `threads` neighbouring bands at the same time. So each band
// uses data that the band below has left in the last-level cache. Threads begin the next strip while they finish the
// last tiles of the current strip.
//
// Sweeps (D = 0) update the levels one after another. Each level is divided into blocks of rows. If the grid has few
// rows, each level is divided into chunks of zeta. The blocks of a level do not depend on each other. Sweeps update
// cells in the same order as plain loops. Sweeps exist only for comparison with diamonds and bands.
//
// Struct Tile describes every tile (of diamonds, bands or sweeps) as a pair of trapezoids. At each level, a tile has
// the rows y with y_low + slope*|level - centre| <= y < y_high - slope*|level - centre|. The tile has the values
// zeta_low <= zeta < zeta_high, where zeta is counted from the beginning of the slab.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace outcrop {

struct Tile {
  long level_first = 0, level_last = 0;  ///< the first and the last level of the tile; both belong to the tile
  long centre = 0;                       ///< the level at which the tile has its maximum number of rows
  /// at level `centre`, the tile has the rows y_low <= y < y_high; some of these rows may lie outside the grid
  long y_low = 0, y_high = 0;
  long slope = 0;  ///< number of rows that each side of the tile loses with each level away from the centre
  /// the tile has the values zeta_low <= zeta < zeta_high, counted from the first zeta of the slab
  long zeta_low = 0, zeta_high = std::numeric_limits<int>::max();
  std::vector<std::size_t> needs{};  ///< indices of the tiles that must be finished before this tile begins
};

/// Returns diamonds for the levels 1 to `levels` and for `rows` rows. In the returned list, a tile comes after the
/// tiles that it needs. `diamond` is the size D of the diamonds, at least 1. `skew` is the maximum distance, in rows,
/// at which an update reads values of the level below. `threads` is the number of threads of a NUMA node. `begin` lists
/// the rows at which the diagonals begin. `begin` has at least one row, and its rows are in ascending order.
std::vector<Tile> diamond_tiles(long levels, long rows, long skew, long diamond, unsigned threads,
                                const std::vector<long> &begin = {0});

/// Describes how a slab is divided into chunks of zeta.
struct Chunks {
  long count = 1;
  long zetas = 1;    ///< number of values of zeta in each chunk
  long at_once = 1;  ///< maximum number of chunks in which one level has planes to update
};

/// Returns the tiles of all bands. A tile has `height` levels and all `rows` rows of a chunk. In the returned list, a
/// tile comes after the tiles that it needs.
std::vector<Tile> band_tiles(long levels, long rows, long height, const Chunks &chunks, unsigned threads);

/// Returns the tiles of sweeps over chunks. Each tile has one level and all `rows` rows of a chunk. `skew` is the
/// maximum distance, in planes, at which an update reads values of the level below.
std::vector<Tile> chunk_sweep_tiles(long levels, long rows, long skew, const Chunks &chunks);

/// Returns the tiles of sweeps over rows. Each tile has one level and `rows_per_block` rows.
std::vector<Tile> sweep_tiles(long levels, long rows, long skew, long rows_per_block);

}  // namespace outcrop
