// The grid: its extents, what of it is rim, and the order in which planes and rows are taken.
//
// The window slides over positions. As a rule position p is plane p; on a periodic axis planes are taken from both ends in turn,
// so that neighbours across the ends are near each other, too, and nothing has to be read twice:
//
//     position   0   1    2   3    4   5   ...       a stencil of radius r then reaches 2r positions,
//     plane      0  n-1   1  n-2   2  n-3  ...       and so far the window leans per level
//
// Rows are folded alike when tiles are cut. On disk and in memory planes and rows lie in their own order.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

namespace outcrop {

/// Position of number i of n things that are taken from both ends in turn, and back.
inline long fold(long i, long n) { return i < (n + 1) / 2 ? 2 * i : 2 * (n - 1 - i) + 1; }
inline long unfold(long position, long n) { return position % 2 == 0 ? position / 2 : n - 1 - position / 2; }

/// Extents of the grid and of its planes in memory. Rows are `pitch_bytes` apart, records `record_bytes`.
struct Grid {
  long nz = 0, ny = 0, nx = 0;
  long radius_z = 0, radius_y = 0;     ///< how far the stencil reaches
  long rim_z_low = 0, rim_z_high = 0;  ///< planes at both ends that keep their values
  long rim_y_low = 0, rim_y_high = 0;  ///< rows
  bool periodic_z = false, periodic_y = false;
  long skew_z = 1, skew_y = 1;  ///< positions a dependency may move per level, at least 1
  long statics_z = 0;           ///< positions away at which updates read fields that nothing updates
  std::size_t item_bytes = 0;
  std::size_t pitch_bytes = 0;
  std::size_t plane_bytes = 0;
  std::size_t record_bytes = 0;

  long pitch_cells() const { return static_cast<long>(pitch_bytes / item_bytes); }
  std::size_t tail_bytes() const { return record_bytes - plane_bytes; }
  long first_plane() const { return rim_z_low; }      ///< first plane that is updated
  long end_plane() const { return nz - rim_z_high; }  ///< one past the last
  long first_row() const { return rim_y_low; }
  long end_row() const { return ny - rim_y_high; }

  /// The plane at a position.
  long plane(long position) const { return periodic_z ? unfold(position, nz) : position; }

  /// The position of the plane whose values plane z has, which may lie beyond a boundary that is not fixed.
  long position(long z) const {
    if (periodic_z) return fold(((z % nz) + nz) % nz, nz);
    while (z < 0 || z >= nz) z = z < 0 ? -1 - z : 2 * nz - 1 - z;
    return z;
  }
};

/// Rows y0 <= y < y1 and cells x0 <= x < x1 of a plane; x0 and x1 are multiples of 64 bytes, padding included.
struct Cut {
  long y0 = 0, y1 = 0, x0 = 0, x1 = 0;

  long rows() const { return y1 - y0; }
  long columns() const { return x1 - x0; }
  bool empty() const { return y0 >= y1 || x0 >= x1; }
  bool operator==(const Cut &) const = default;
};

inline Cut whole_plane(const Grid &grid) { return Cut{0, grid.ny, 0, grid.pitch_cells()}; }

inline Cut intersection(const Cut &a, const Cut &b) {
  return Cut{std::max(a.y0, b.y0), std::min(a.y1, b.y1), std::max(a.x0, b.x0), std::min(a.x1, b.x1)};
}

/// The rows of a plane that a cut of folded ones stands for: some from the lower end and some from the upper one.
inline std::array<Cut, 2> unfolded(const Grid &grid, const Cut &cut) {
  if (!grid.periodic_y) return {cut, Cut{}};
  Cut low = cut, high = cut;
  low.y0 = (cut.y0 + 1) / 2, low.y1 = (cut.y1 + 1) / 2;
  high.y0 = grid.ny - cut.y1 / 2, high.y1 = grid.ny - cut.y0 / 2;
  return {low, high};
}

}  // namespace outcrop
