/* Loops written by hand, and functions that measure loops.
 *
 * Loops are measured in C, because a call from Python takes as long as a loop over data in a cache. In each loop, rows
 * have `pitch` cells and start at multiples of 64 bytes, and planes have ny rows. Blocks have `block` rows, so that the
 * planes that a block reads stay in a cache.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <time.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define AROUND(d) (u[x - d] + u[x + d] + u[x - d * pitch] + u[x + d * pitch] + u[x - d * plane] + u[x + d * plane])

/* Heat equation of second order, one explicit step: u' = c0 u + c1 (sum of the six neighbours). The loop updates cells
 * 1 .. n-2 along each axis. */
__attribute__((noinline)) static void heat7(float *restrict next, const float *restrict now, long nz, long ny, long nx,
                                            long pitch, long block, float c0, float c1) {
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

/* Acoustic wave equation of eighth order in space, one leapfrog step: u'' = 2 u - u_previous + dt^2 v^2 lap u, written
 * over u_previous. `scale` is (dt / h)^2. The loop updates cells 4 .. n-5 along each axis. */
__attribute__((noinline)) static void acoustic8(float *restrict previous, const float *restrict now,
                                                const float *restrict velocity, long nz, long ny, long nx, long pitch,
                                                long block, float scale) {
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

struct outcrop_block {
  void *const *const *target;
  const void *const *const *source;
  long planes, y0, y1, x0, x1, nx, ny, pitch;
  const void *scalars;
  long rows_at_once;
  const void *const *prefetch;
  long prefetch_rows;
};
typedef void (*outcrop_kernel)(const struct outcrop_block *);

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* A generated kernel gets planes z0 <= z < z1 two at a time, and rows in blocks of `rows`. The engine does the same.
 * `source` has `sources` lists, and `target` is one list. Each list has a pointer to each plane of the grid. */
double time_generated(outcrop_kernel kernel, const void *const *const *source, long sources, void *const *target,
                      const void *scalars, long z0, long z1, long y0, long y1, long nx, long ny, long rows,
                      long repeats) {
  const void *const *at[8];
  void *const *to[1];
  const double start = now();
  for (long i = 0; i < repeats; i++)
    for (long y = y0; y < y1; y += rows)
      for (long z = z0; z < z1; z += 2) {
        for (long j = 0; j < sources; j++) at[j] = source[j] + z;
        to[0] = target + z;
        const struct outcrop_block block = {
            to, at, z1 - z < 2 ? z1 - z : 2, y, y + rows < y1 ? y + rows : y1, 0, nx, nx, ny, nx, scalars};
        kernel(&block);
      }
  return now() - start;
}

/* Sets the number of threads of the OpenMP library with which these loops were compiled. */
void set_threads(int threads) { omp_set_num_threads(threads); }

double time_heat7(float *next, const float *current, long nz, long ny, long nx, long rows, const float *scalars,
                  long repeats) {
  const double start = now();
  for (long i = 0; i < repeats; i++) heat7(next, current, nz, ny, nx, nx, rows, scalars[0], scalars[1]);
  return now() - start;
}

double time_acoustic8(float *previous, const float *current, const float *velocity, long nz, long ny, long nx,
                      long rows, const float *scalars, long repeats) {
  const double start = now();
  const float ratio = scalars[0] / scalars[1];
  for (long i = 0; i < repeats; i++) acoustic8(previous, current, velocity, nz, ny, nx, nx, rows, ratio * ratio);
  return now() - start;
}
