// How fast is memory? The loops of STREAM (McCalpin 1995), plain reads and writes, and accesses at random.
//
//     a, b, c     three arrays, each of at least four times the last-level cache, every thread with its own part of each
//     read  sum of a    write  a = s     and copy, scale, add, triad, as in stream_loops.hpp
//
// A byte that a loop names counts once, as STREAM counts; that processors fetch a cache line before they write to it does
// not. No store goes around the caches: loops are written so that compilers cannot make calls of them that would.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/team.hpp"

namespace outcrop {

class MemoryMeter {
 public:
  /// Takes three arrays of `array_bytes` from the memory of `nodes`, of all of them in turn, or where they are first touched
  /// where there are none. Throws InputError when the system refuses that.
  MemoryMeter(Placement placement, std::size_t array_bytes, const std::vector<unsigned> &nodes);

  /// Bytes per second of all threads in that loop: the best of `repeats` after one that warms up. Throws InputError for an
  /// unknown name.
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

}  // namespace outcrop
