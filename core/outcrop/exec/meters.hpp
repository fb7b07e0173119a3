// This file measures the speed of updates, checksums, memory and storage. No other program should run on the machine
// during a measurement.
//
// MemoryMeter and Stream run the loops of STREAM (McCalpin 1995) over three arrays a, b and c, with the factor s = 3:
//
//     copy  c = a     scale  b = s c     add  c = a + b     triad  a = b + s c
//
// As in STREAM, a measured speed is the number of bytes of all arrays in the formula, divided by the time. Before a
// processor writes to a cache line, the processor fetches the line from memory. The measured speeds do not include
// these fetched bytes. The compiler must not replace the loops with library functions, because these functions write to
// memory without the caches. The code of the loops prevents this.
//
// The class Stream works on any memory, including mapped files. It can make its results durable. Stream has three modes
// of flushing. These modes follow A. Jackson:
//
//     none         only the loop runs; the result is not made durable
//     individual   each element is written back before the next element is stored; msync writes back whole pages
//     collective   the loop runs, then several threads flush the whole result
//
// Each thread works on one range of elements. The range is the same in all three arrays. The thread is also the first
// thread that touches the elements of its range.
#pragma once

#include <cstddef>
#include <cstdint>
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
#include "outcrop/storage/store.hpp"

namespace outcrop {

// --- updates, checksums and memory -----------------------------------------------------------------------------------

/// Measures updates of slabs. The planes have the same layout as the planes of `grid`, but the streaming axis has no
/// end.
class UpdateMeter {
 public:
  /// Allocates `rings` rings of `ring_planes` planes. The constructor touches the memory of the rings. The first access
  /// to memory is slow, and must not be part of a measurement.
  UpdateMeter(const Grid &grid, Stages stages, ThreadPlacement placement, std::size_t rings, long ring_planes);

  /// Updates `repeats` slabs. Each slab has `slab_planes` planes and `levels` levels. Before the measurement, one
  /// additional slab is updated to warm up the caches. Returns the number of cell updates per second for each slab.
  /// Each slot holds the cells `frame` of a plane. Only the cells inside `region` are updated. If `shifted` is true,
  /// small slots begin at different offsets in a page. Large slots always begin at different offsets in a page
  /// (window.hpp). Throws InputError if the slabs need more memory than the window has.
  std::vector<double> measure(const Tiling &tiling, long levels, long slab_planes, const Rectangle &frame,
                              const UpdateRegion &region, int repeats, bool shifted = false);

  /// Returns the number of planes that each ring needs for slabs of `slab_planes` planes and `levels` levels.
  static long planes_needed(const Grid &grid, long levels, long slab_planes);

 private:
  const Grid grid_;
  const Stages stages_;
  const Window window_;
  Team team_;
};

/// Measures the speed of checksums for planes that are not in a cache. Returns the speed of all threads together, in
/// bytes per second.
double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes);

/// The type of the loops of STREAM. The three spans have the same length. Every loop reads `first`. A loop reads
/// `second` only if the loop's formula has two input arrays.
using StreamLoop = void (*)(std::span<const double> first, std::span<const double> second, std::span<double> result);

/// Returns the loop with the name `name`: "copy", "scale", "add" or "triad". Throws InputError for another name.
StreamLoop find_stream_loop(const std::string &name);

class MemoryMeter {
 public:
  /// Allocates three arrays of `array_bytes` bytes each. Each array should be at least four times as large as the
  /// last-level cache. Successive pages come alternately from the NUMA nodes `nodes`. If `nodes` is empty, a page is on
  /// the node of the thread that first touches the page. Throws InputError if the system cannot bind the memory to
  /// these nodes.
  MemoryMeter(ThreadPlacement placement, std::size_t array_bytes, const std::vector<unsigned> &nodes);

  /// Runs a loop on all threads. The loop "read" adds all elements of the array a. The loop "write" sets all elements
  /// of the array a. The other loops are the loops of STREAM. Returns the bytes per second in the fastest of `repeats`
  /// measurements. Before the measurements, the loop runs once, to warm up the caches. Throws InputError for an unknown
  /// name.
  double bandwidth(const std::string &loop, int repeats);

  /// Measures reads or writes of random cache lines. These reads or writes do not depend on each other. Returns the
  /// bytes per second that all threads together read or write.
  double random_bandwidth(bool write);

  /// Returns the time in seconds that one load from memory takes. Each load returns the address of the next load. The
  /// addresses form a random cycle through all cache lines of an array.
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
  /// the times of the loop and of the collective flush, in seconds; the time of individual flushes is part of `loop`
  double loop = 0, flush = 0;
};

/// Runs the loops of STREAM on a team of threads. Each thread works on whole pages of the arrays.
class Stream {
 public:
  explicit Stream(ThreadPlacement placement) : team_(std::move(placement)) {}

  /// Sets all elements of an array to `value`. Each thread sets those elements on which it will work later.
  void fill(std::span<double> values, double value);

  /// Returns whether all elements equal `value`.
  bool holds(std::span<const double> values, double value);

  /// Runs a loop over arrays of the same length. If `flush` is not `none`, the result is durable when run() returns. If
  /// `flush` is not `none`, `result` must be a part of `mapping` that begins at a page boundary. Throws StorageError if
  /// a flush fails.
  StreamSeconds run(StreamLoop loop, std::span<const double> first, std::span<const double> second,
                    std::span<double> result, StreamFlush flush, const Mapping *mapping);

  /// Returns the number of elements that each individual flush makes durable.
  static std::size_t flushed_at_once(const Mapping &mapping);

 private:
  struct PartOfThread {
    std::size_t begin, length;
  };
  PartOfThread part_of(unsigned member, std::size_t count) const;

  Team team_;
};

// --- transfers -------------------------------------------------------------------------------------------------------
// These functions measure the speed of transfers. The transfers use a store, plain system calls, or a mapping of a
// file.
//
//     request   ├──┤                       sequential: one request after another, repeatedly from the first
//     span      ├──┬──┬──┬── … ──┬──┤      random: each request of the span with the same probability
//     depth     the number of requests in flight; if it is 1, the time of a request is the latency

/// Describes a series of transfers within the first `span_bytes` bytes of a file. The series ends when `total_bytes`
/// bytes are transferred or `max_seconds` seconds have passed.
struct Workload {
  bool write = false;
  bool random = false;
  bool flush = false;  ///< true if the series ends with a flush; the measured time then includes the flush
  std::size_t request_bytes = 4096;
  std::size_t depth = 1;  ///< number of requests in flight, or number of threads with one request each
  std::uint64_t span_bytes = 0;
  std::uint64_t total_bytes = 0;
  double max_seconds = 0;
};

struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t requests = 0;
  double seconds = 0;
};

/// Measures transfers of the first file in a store. Writes fill the file with noise. At least one request is made.
/// Throws InputError if the span is too small, or if the depth is larger than the depth of the store. Throws
/// StorageError.
Moved measure_transfers(Store &store, const Workload &workload);

/// Measures transfers through the page cache. Independent threads perform the transfers. The sequential transfers of a
/// thread stay in the thread's own part of the span. Random transfers use the whole span. If `mapped` is true, the
/// threads transfer bytes with loads and stores, and a flush is a call of msync. If `mapped` is false, the threads use
/// pread and pwrite, and a flush is a call of fdatasync. Throws the same errors as measure_transfers().
Moved measure_threads(const std::string &path, bool mapped, const Workload &workload);

}  // namespace outcrop
