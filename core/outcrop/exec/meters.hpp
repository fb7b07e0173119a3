// How fast are updates, checksums and memory, with nothing else going on?
//
// MemoryMeter and Stream run the loops of STREAM (McCalpin 1995) over three arrays, with s = 3:
//
//     copy  c = a     scale  b = s c     add  c = a + b     triad  a = b + s c
//
// A byte that a loop names counts once, as STREAM counts. That processors fetch a cache line before they write to it does not
// count. No store bypasses the caches: the loops are written so that compilers cannot replace them by calls that would.
//
// MemoryMeter also measures plain reads and writes and random accesses in memory. Stream works on any memory, also on mapped
// files, with the ways to make its results durable (A. Jackson):
//
//     none         the loop
//     individual   every element is stored, written back, and waited for; with msync, every page
//     collective   the loop, then the whole result is flushed at once, by several threads
//
// Every thread has the same part of all arrays, and is the first to touch it.
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

/// Updates slabs of an endless grid with the rows of `grid`, in a window that is allocated once, because touching memory for
/// the first time takes longer than a measurement.
class UpdateMeter {
 public:
  /// Allocates and touches `rings` rings of `ring_planes` planes.
  UpdateMeter(const Grid &grid, Stages stages, ThreadPlacement placement, std::size_t rings, long ring_planes);

  /// Cell updates per second for each of `repeats` slabs of `slab_planes` and `levels`, after one that warms up. The slots of the
  /// block hold `frame`, and it updates `region`. Throws InputError if the slabs need more memory than there is.
  std::vector<double> measure(const Tiling &tiling, long levels, long slab_planes, const Rectangle &frame,
                              const UpdateRegion &region, int repeats);

  /// The planes that each ring must have for that.
  static long planes_needed(const Grid &grid, long levels, long slab_planes);

 private:
  const Grid grid_;
  const Stages stages_;
  const Window window_;
  Team team_;
};

/// Bytes per second at which all threads together compute checksums of planes that are not in a cache.
double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes);

/// A loop of STREAM over spans of one length: the arrays it reads, in the order above, and the one it writes. Loops that read
/// one array ignore `second`.
using StreamLoop = void (*)(std::span<const double> first, std::span<const double> second, std::span<double> result);

/// "copy", "scale", "add" or "triad". Throws InputError for anything else.
StreamLoop find_stream_loop(const std::string &name);

class MemoryMeter {
 public:
  /// Allocates three arrays of `array_bytes`, which should be at least four times the last-level cache: in the memory of `nodes`,
  /// of all of them in turn, or, if there are none, where they are first touched. Throws InputError if the system refuses.
  MemoryMeter(ThreadPlacement placement, std::size_t array_bytes, const std::vector<unsigned> &nodes);

  /// Bytes per second of all threads in "read" (sum of a), "write" (a = s) or a loop of STREAM: the best of `repeats` after one
  /// that warms up. Throws InputError for an unknown name.
  double bandwidth(const std::string &loop, int repeats);

  /// Bytes per second of all threads in cache lines read or written at random, independent of each other.
  double random_bandwidth(bool write);

  /// Seconds from one load to the next whose address depends on it, along a random cycle through all cache lines of an array.
  double latency();

 private:
  double best_seconds(int repeats, const Team::Job &job);

  Team team_;
  AlignedMemory memory_;
  std::size_t count_;  // doubles of an array
  double *a_, *b_, *c_;
};

enum class StreamFlush : unsigned char { none, individual, collective };

struct StreamSeconds {
  double loop = 0, flush = 0;  ///< one after the other; individual flushes are part of the loop
};

/// STREAM by a team of threads, whose parts are whole pages.
class Stream {
 public:
  explicit Stream(ThreadPlacement placement) : team_(std::move(placement)) {}

  /// Sets all values, each thread its part.
  void fill(std::span<double> values, double value);

  /// Whether all elements are `value`.
  bool holds(std::span<const double> values, double value);

  /// Runs a loop over arrays of one length. With a flush the result is a part of `mapping` that begins with a page, and is
  /// durable when this returns. Throws StorageError.
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
