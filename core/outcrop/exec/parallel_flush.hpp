// A mapping made durable by several threads: one alone waits for one part of the device's queue at a time.
#pragma once

#include <cstddef>

#include "outcrop/storage/mapping.hpp"

namespace outcrop {

/// As Mapping::flush, in pieces by that many threads. Throws StorageError.
void flush_in_parallel(const Mapping &mapping, std::size_t begin, std::size_t length, unsigned threads);

}  // namespace outcrop
