// How fast is a store, and how fast a file by plain calls or mapped? Transfers as runs make them, with nothing else going on.
//
//     request   ├──┤                         sequential: one after the other, from the front again at the end of the span
//     span      ├──┬──┬──┬── … ──┬──┤        random: any of them, each as likely as the others
//     depth     as many in flight at any time; with 1 the time of a request is its latency
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// What is moved, over the first `span_bytes` of a file: `total_bytes`, or what `seconds_most` allow.
struct Workload {
  bool write = false;
  bool random = false;
  bool flush = false;  ///< make what was written durable at the end, within the time
  std::size_t request_bytes = 4096;
  std::size_t depth = 1;  ///< requests in flight, or threads that have one each
  std::uint64_t span_bytes = 0;
  std::uint64_t total_bytes = 0;
  double seconds_most = 0;
};

/// What was moved, and how long that took.
struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t requests = 0;
  double seconds = 0;
};

/// Moves that by the first file of the store; writes put noise there. At least one request is made. Throws InputError for a
/// span smaller than a request, and for more requests in flight than the store takes; StorageError.
Moved measure_transfers(Store &store, const Workload &workload);

/// Moves that through the page cache, by threads that share the span and do not wait for each other: by calls, pread and
/// pwrite, or by loads from and stores to the mapped file. A flush is fdatasync or msync. Throws as above.
Moved measure_threads(const std::string &path, bool mapped, const Workload &workload);

}  // namespace outcrop
