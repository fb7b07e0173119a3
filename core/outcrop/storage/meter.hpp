// Measures how fast a store is, and how fast a file is by plain calls or when mapped.
//
//     request   ├──┤                         sequential: one after the other; after the end of the span again from its start
//     span      ├──┬──┬──┬── … ──┬──┤        random: each with the same probability
//     depth     the number of requests in flight; with 1 the time of a request is its latency
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Transfers within the first `span_bytes` of a file, until `total_bytes` are moved or `max_seconds` are over.
struct Workload {
  bool write = false;
  bool random = false;
  bool flush = false;  ///< flush at the end; the time includes it
  std::size_t request_bytes = 4096;
  std::size_t depth = 1;  ///< requests in flight, or threads with one request each
  std::uint64_t span_bytes = 0;
  std::uint64_t total_bytes = 0;
  double max_seconds = 0;
};

struct Moved {
  std::uint64_t bytes = 0;
  std::uint64_t requests = 0;
  double seconds = 0;
};

/// Measures transfers of the first file of a store. Writes overwrite it with noise. At least one request is made. Throws
/// InputError if the span is too small or the depth larger than that of the store, and StorageError.
Moved measure_transfers(Store &store, const Workload &workload);

/// Measures transfers through the page cache by independent threads that share the span: with pread and pwrite, or with
/// loads from and stores to the mapped file. A flush is fdatasync or msync. Throws as measure_transfers.
Moved measure_threads(const std::string &path, bool mapped, const Workload &workload);

}  // namespace outcrop
