/* The one signature every update kernel has: generated, hand-written or linked in.
 *
 * A call updates rows y0 <= y < y1, cells x0 <= x < x1 of `planes` consecutive planes of the grid.
 *
 *     source[f][k + dz]   plane (z + k + dz) of read field f, |dz| <= radius     (first cell of the plane)
 *     target[f][k]        plane (z + k) of updated field f, k = 0 .. planes-1
 *
 *           x0                     x1
 *       y0  +----------------------+      pitch: elements from one row to the next, a multiple of 64 bytes
 *           |  whole vectors only  |      nx:    cells that exist; nx .. pitch-1 are padding
 *       y1  +----------------------+
 *
 * x0 and x1 are multiples of 64 bytes. Cells within the x radius of the rim, and padding, take the value of the same
 * cell of the source (a fixed boundary), so whole aligned vectors can be stored. Rows of the y rim and planes
 * of the z rim are never asked for. A kernel may read up to 64 bytes per unit of x radius, rounded up to whole
 * vectors, before the first and behind the last cell of a plane: the window keeps that memory readable.
 * A kernel never allocates, locks or fails.
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
  long nx;
  long pitch;
  const void *scalars; /* parameter values in the kernel's dtype, in the stencil's order */
};

typedef void (*outcrop_kernel)(const struct outcrop_block *block);

#ifdef __cplusplus
}
#endif
#endif
