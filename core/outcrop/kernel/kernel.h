/* The signature of every update kernel: generated, hand-written or linked in. A stage of a step has one kernel.
 *
 * A call updates rows y0 <= y < y1, cells x0 <= x < x1 of `planes` consecutive planes of the grid.
 *
 *     source[i][k + dz]   plane (z + k + dz) of operand i, which is read, |dz| <= radius   (first cell of the plane)
 *     target[j][k]        plane (z + k) of updated field j, k = 0 .. planes-1
 *
 *           x0                     x1
 *       y0  +----------------------+      pitch: elements from one row to the next, a multiple of 64 bytes
 *           |  whole vectors only  |      nx:    cells that exist; nx .. pitch-1 are padding, which becomes 0
 *       y1  +----------------------+      ny:    rows that exist
 *
 * The first operands are the newest values of the updated fields, in their order. A target may be the plane of one of
 * the operands: of a field that is updated where it lies, or of the value that is older than the newest.
 *
 * x0 and x1 are multiples of 64 bytes. If the boundary in x is fixed, cells within the x radius of it take the value of the
 * same cell of the newest operand. If it is not fixed, the kernel reads the cells beyond it from the same row. If the boundary
 * in y is not fixed, the kernel reads the rows beyond it from the same plane. No call asks for rows of a fixed rim in y or for
 * planes of a fixed rim in z. Planes beyond other boundaries in z are among the sources. A kernel may read up to 64 bytes per
 * unit of x radius, rounded up to whole vectors, before the first and behind the last cell of a plane: the window keeps that
 * memory readable.
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
  long nx, ny;
  long pitch;
  const void *scalars; /* parameters, then signals of this step, in the kernel's dtype and the stencil's order */
};

typedef void (*outcrop_kernel)(const struct outcrop_block *block);

#ifdef __cplusplus
}
#endif
#endif
