// STREAM by a team of threads, in memory and on mapped files, with the ways to make its results durable (A. Jackson).
//
//     none         the loop
//     individual   every element is stored, written back, and waited for; where that takes msync, every page
//     collective   the loop, then the whole result is flushed at once, by several threads
//
// Every thread has the same part of all arrays, whole pages of it, and is the first to touch it.
#pragma once

#include <cstddef>
#include <span>

#include "outcrop/exec/stream_loops.hpp"
#include "outcrop/exec/team.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {

enum class StreamFlush : unsigned char { none, individual, collective };

struct StreamSeconds {
  double loop = 0, flush = 0;  ///< one after the other; individual flushes are part of the loop
};

class Stream {
 public:
  explicit Stream(Placement placement) : team_(std::move(placement)) {}

  /// Each thread its part.
  void fill(std::span<double> values, double value);

  /// Whether all of them are that value.
  bool holds(std::span<const double> values, double value);

  /// Runs a loop over arrays of one length. With a flush the result is a part of `mapping` that begins with a page, and is
  /// durable when this returns. Throws StorageError.
  StreamSeconds run(StreamLoop loop, std::span<const double> first, std::span<const double> second,
                    std::span<double> result, StreamFlush flush, const Mapping *mapping);

  /// Elements that are flushed at once when they are flushed individually.
  static std::size_t flushed_at_once(const Mapping &mapping);

 private:
  struct Part {
    std::size_t begin, length;
  };
  Part part_of(unsigned member, std::size_t count) const;

  Team team_;
};

}  // namespace outcrop
