/* Acoustic wave equation of eighth order in space, one leapfrog step, written by hand:
 *
 *     u'' = 2 u - u_previous + dt^2 v^2 lap u, written over u_previous; `scale` is (dt / h)^2
 *
 * The loop updates cells 4 .. n-5 along each axis. Rows have `pitch` cells and start at multiples of 64 bytes. Planes
 * have ny rows. Blocks have `block` rows, so that the nine planes that a block reads stay in a cache.
 */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define AROUND(d) (u[x - d] + u[x + d] + u[x - d * pitch] + u[x + d * pitch] + u[x - d * plane] + u[x + d * plane])

void sweep(float *restrict previous, const float *restrict now, const float *restrict velocity, long nz, long ny,
           long nx, long pitch, long block, float scale) {
  const long plane = ny * pitch;
  const float w0 = -205.0f / 24.0f, w1 = 8.0f / 5.0f, w2 = -1.0f / 5.0f, w3 = 8.0f / 315.0f, w4 = -1.0f / 560.0f;
#pragma omp parallel for schedule(static)
  for (long y0 = 4; y0 < ny - 4; y0 += block)
    for (long z = 4; z < nz - 4; z++)
      for (long y = y0; y < MIN(y0 + block, ny - 4); y++) {
        const float *restrict u = __builtin_assume_aligned(now + z * plane + y * pitch, 64);
        const float *restrict v = __builtin_assume_aligned(velocity + z * plane + y * pitch, 64);
        float *restrict q = __builtin_assume_aligned(previous + z * plane + y * pitch, 64);
#pragma omp simd
        for (long x = 4; x < nx - 4; x++) {
          const float laplacian = w0 * u[x] + w1 * AROUND(1) + w2 * AROUND(2) + w3 * AROUND(3) + w4 * AROUND(4);
          q[x] = 2.0f * u[x] - q[x] + scale * (v[x] * v[x]) * laplacian;
        }
      }
}
