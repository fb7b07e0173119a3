// Functions that measure the speed of transfers. They use a store, plain system calls or a mapping of a file.
//
//     request   ├──┤                       sequential: one request after another, repeatedly from the first
//     span      ├──┬──┬──┬── … ──┬──┤      random: each request of the span with the same probability
//     depth     the number of requests in flight; if it is 1, the time of a request is the latency
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Describes a series of transfers within the first `span_bytes` of a file. The series ends when `total_bytes` are
/// transferred or `max_seconds` have passed.
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

/// Measures transfers of the first file of a store. Writes fill the file with noise. At least one request is made.
/// Throws InputError if the span is too small or the depth is larger than the store's depth. Throws StorageError.
Moved measure_transfers(Store &store, const Workload &workload);

/// Measures transfers through the page cache by independent threads that share the span. If `mapped` is true, the
/// threads use loads and stores, and a flush is msync. Otherwise the threads use pread and pwrite, and a flush is
/// fdatasync. Throws the same errors as measure_transfers().
Moved measure_threads(const std::string &path, bool mapped, const Workload &workload);

}  // namespace outcrop
