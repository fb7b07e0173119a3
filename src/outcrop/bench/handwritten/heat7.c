/* Heat equation of second order, one explicit step, written by hand: u' = c0 u + c1 (sum of the six neighbours).
 *
 * The loop updates cells 1 .. n-2 along each axis. Rows have `pitch` cells and start at multiples of 64 bytes. Planes
 * have ny rows. Blocks have `block` rows, so that the three planes that a block reads stay in the second-level cache.
 */
#define MIN(a, b) ((a) < (b) ? (a) : (b))

void sweep(float *restrict next, const float *restrict now, long nz, long ny, long nx, long pitch, long block, float c0,
           float c1) {
  const long plane = ny * pitch;
#pragma omp parallel for schedule(static)
  for (long y0 = 1; y0 < ny - 1; y0 += block)
    for (long z = 1; z < nz - 1; z++)
      for (long y = y0; y < MIN(y0 + block, ny - 1); y++) {
        const float *restrict u = __builtin_assume_aligned(now + z * plane + y * pitch, 64);
        float *restrict q = __builtin_assume_aligned(next + z * plane + y * pitch, 64);
#pragma omp simd
        for (long x = 1; x < nx - 1; x++)
          q[x] = c0 * u[x] + c1 * (u[x - 1] + u[x + 1] + u[x - pitch] + u[x + pitch] + u[x - plane] + u[x + plane]);
      }
}
