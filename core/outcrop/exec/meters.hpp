// Measures the speed of updates, checksums and memory while nothing else runs.
//
// MemoryMeter and Stream run the loops of STREAM (McCalpin 1995) over three arrays, with s = 3:
//
//     copy  c = a     scale  b = s c     add  c = a + b     triad  a = b + s c
//
// Like STREAM, they count each byte of the arrays in a formula once. They do not count that a processor fetches a cache
// line before it writes to it. No store bypasses the caches: the loops are written so that compilers cannot replace
// them by calls of library functions that bypass them.
//
// MemoryMeter also measures plain reads and writes, and random accesses to memory. Stream works on any memory,
// including mapped files. It makes its results durable in one of these ways (A. Jackson):
//
//     none         only the loop
//     individual   each element is stored and written back before the next one; with msync, each page
//     collective   the loop runs, then several threads flush the whole result
//
// Each thread has the same part of all arrays, and is the first to touch it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/problem.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/exec/traverse.hpp"
#include "outcrop/exec/window.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {

/// Updates slabs of an endless grid with the rows of `grid`. The window is allocated only once, because the first touch
/// of memory takes longer than a measurement.
class UpdateMeter {
 public:
  /// Allocates and touches `rings` rings of `ring_planes` planes.
  UpdateMeter(const Grid &grid, Stages stages, ThreadPlacement placement, std::size_t rings, long ring_planes);

  /// Cell updates per second for each of `repeats` slabs of `slab_planes` planes and `levels` levels, after one slab to
  /// warm up. The slots of the block hold `frame`, and the block updates `region`. Throws InputError if the slabs need
  /// more memory than the window has.
  std::vector<double> measure(const Tiling &tiling, long levels, long slab_planes, const Rectangle &frame,
                              const UpdateRegion &region, int repeats);

  /// The number of planes that each ring must have for such slabs.
  static long planes_needed(const Grid &grid, long levels, long slab_planes);

 private:
  const Grid grid_;
  const Stages stages_;
  const Window window_;
  Team team_;
};

/// The rate at which all threads together compute checksums of planes that are not in a cache, in bytes per second.
double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes);

/// A loop of STREAM over spans of the same length: the arrays that it reads, in the order above, and the array that it
/// writes. A loop that reads only one array ignores `second`.
using StreamLoop = void (*)(std::span<const double> first, std::span<const double> second, std::span<double> result);

/// The loop "copy", "scale", "add" or "triad". Throws InputError for another name.
StreamLoop find_stream_loop(const std::string &name);

class MemoryMeter {
 public:
  /// Allocates three arrays of `array_bytes`, which should be at least four times the last-level cache. Their pages
  /// come from the `nodes` in turn, or, without nodes, from the node of the thread that first touches them. Throws
  /// InputError if the system refuses.
  MemoryMeter(ThreadPlacement placement, std::size_t array_bytes, const std::vector<unsigned> &nodes);

  /// Bytes per second of all threads in the loop "read" (the sum of a), "write" (a = s) or a loop of STREAM: the best
  /// of `repeats` measurements, after one to warm up. Throws InputError for an unknown name.
  double bandwidth(const std::string &loop, int repeats);

  /// Bytes per second of all threads for independent reads or writes of random cache lines.
  double random_bandwidth(bool write);

  /// Seconds of one load whose address depends on the load before it, along a random cycle through all cache lines of
  /// an array.
  double latency();

 private:
  double best_seconds(int repeats, const Team::Job &job);

  Team team_;
  AlignedMemory memory_;
  std::size_t count_;  // number of doubles in an array
  double *a_, *b_, *c_;
};

enum class StreamFlush : unsigned char { none, individual, collective };

struct StreamSeconds {
  double loop = 0, flush = 0;  ///< the two phases; the loop includes individual flushes
};

/// STREAM by a team of threads. The part of each thread consists of whole pages.
class Stream {
 public:
  explicit Stream(ThreadPlacement placement) : team_(std::move(placement)) {}

  /// Sets all values. Each thread sets its part.
  void fill(std::span<double> values, double value);

  /// Whether all elements are `value`.
  bool holds(std::span<const double> values, double value);

  /// Runs a loop over arrays of the same length. With a flush, `result` must be a part of `mapping` that begins with a
  /// page; it is durable when this returns. Throws StorageError.
  StreamSeconds run(StreamLoop loop, std::span<const double> first, std::span<const double> second,
                    std::span<double> result, StreamFlush flush, const Mapping *mapping);

  /// The number of elements that an individual flush makes durable.
  static std::size_t flushed_at_once(const Mapping &mapping);

 private:
  struct PartOfThread {
    std::size_t begin, length;
  };
  PartOfThread part_of(unsigned member, std::size_t count) const;

  Team team_;
};

}  // namespace outcrop
