/* This file defines the signature of all kernels, which update cells. A kernel is generated, written by hand or linked
 * in. A stage of a step has one kernel.
 *
 * A call updates the cells x0 <= x < x1 in the rows y0 <= y < y1 of `planes` consecutive planes of the grid.
 *
 *     source[i][k + dz]   first cell of plane (z + k + dz) of operand i, |dz| <= radius; the kernel reads this plane
 *     target[j][k]        first cell of plane (z + k) of updated field j, k = 0 .. planes-1; the kernel writes it
 *
 *           x0                     x1
 *       y0  +----------------------+      pitch: elements from one row to the next, a multiple of 64 bytes
 *           |  whole vectors only  |      nx:    cells in a row; the kernel sets the padding behind them to 0
 *       y1  +----------------------+      ny:    rows in a plane
 *
 * The first operands are the newest values of the updated fields, in the order of the fields. A target may be a plane
 * of one of the operands. If a field has one version in memory, the new values replace the newest values. If a field
 * has two versions in memory, the new values replace the older values.
 *
 * The cells x0 and x1 begin at multiples of 64 bytes in the row. Each axis has its own rule for boundaries:
 *   x   If the boundary is fixed, cells that are closer to the boundary than the radius in x do not change: the kernel
 *       copies their newest values to the target. If the boundary is a mirror or periodic, the kernel reads other cells
 *       of the same row in place of the cells beyond the boundary.
 *   y   If the boundary is fixed, no call updates rows of the rim. If the boundary is a mirror or periodic, the kernel
 *       reads other rows of the same plane in place of the rows beyond the boundary.
 *   z   If the boundary is fixed, no call updates planes of the rim. If the boundary is a mirror or periodic, the
 *       caller passes the addresses of the planes that stand for the planes beyond the boundary.
 *
 * In the part of a rank, memory may hold rows of a neighbour before or behind the rank's own rows of a plane. The
 * kernel treats the rows of the neighbour as rows of the plane: row 0 is the first row in memory, ny counts all rows,
 * and the boundary on this side is fixed.
 *
 * `rows_at_once` is a hint: the number of rows that the inner loop of the kernel updates together. The number is 1, or
 * 2 for the same row of two planes, or 4 for two rows of two planes. The results do not depend on this number.
 *
 * `prefetch` is a hint: a list of `prefetch_rows` rows that later calls use first. Each entry is the address of the
 * first cell of a row. Each time the inner loop of the kernel updates its rows, the loop may prefetch the next row of
 * this list. The loop loads the cells x0 <= x < x1 of this row into the second-level cache.
 *
 * A kernel may read memory before the first cell and behind the last cell of a plane. On each side, the kernel reads at
 * most 64 bytes for each unit of the radius in x, rounded up to whole vectors. The window keeps this memory readable.
 *
 * `z` is the number of the first updated plane, and `y` is the number of the first row in memory. A kernel needs both
 * numbers only if an expression depends on the position of the cell. In the part of a rank, planes and rows are counted
 * from the first plane and the first row of the part. Planes and rows of a neighbour have negative numbers, or numbers
 * beyond the end of the part.
 *
 * A kernel never allocates memory, never takes a lock, and never fails.
 */
#ifndef OUTCROP_KERNEL_H
#define OUTCROP_KERNEL_H

#ifdef __cplusplus
extern "C" {
#endif

struct outcrop_block {
  void *const *const *target;
  const void *const *const *source;
  long planes;
  long y0, y1;
  long x0, x1;
  long nx, ny;
  long pitch;
  const void *scalars; /* the parameters, then the signals of this step; in the kernel's dtype and stencil's order */
  long rows_at_once;
  const void *const *prefetch;
  long prefetch_rows;
  long z, y;
};

typedef void (*outcrop_kernel)(const struct outcrop_block *block);

#ifdef __cplusplus
}
#endif
#endif
