/* Measures loops in C, because a call from Python takes as long as a loop over data in a cache.
 *
 * A generated kernel gets planes z0 <= z < z1 two at a time, and rows in blocks of `rows`. The engine does the same. */
#define _GNU_SOURCE
#include <time.h>

struct outcrop_block {
  void *const *const *target;
  const void *const *const *source;
  long planes, y0, y1, x0, x1, nx, ny, pitch;
  const void *scalars;
  long rows_at_once;
};
typedef void (*outcrop_kernel)(const struct outcrop_block *);

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* `source` has `sources` lists, and `target` is one list. Each list has a pointer to each plane of the grid. */
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

double time_heat7(void (*sweep)(float *, const float *, long, long, long, long, long, float, float), float *next,
                  const float *current, long nz, long ny, long nx, long rows, const float *scalars, long repeats) {
  const double start = now();
  for (long i = 0; i < repeats; i++) sweep(next, current, nz, ny, nx, nx, rows, scalars[0], scalars[1]);
  return now() - start;
}

double time_acoustic8(void (*sweep)(float *, const float *, const float *, long, long, long, long, long, float),
                      float *previous, const float *current, const float *velocity, long nz, long ny, long nx,
                      long rows, const float *scalars, long repeats) {
  const double start = now();
  const float ratio = scalars[0] / scalars[1];
  for (long i = 0; i < repeats; i++) sweep(previous, current, velocity, nz, ny, nx, nx, rows, ratio * ratio);
  return now() - start;
}
