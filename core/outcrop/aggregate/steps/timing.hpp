// What an operation took at one rank.
#pragma once

#include <cstdint>

namespace outcrop::aggregate {

/// Seconds and bytes of this rank, since its begin.
struct Timing {
  double seconds = 0;           ///< until the outcome was known
  double seconds_copying = 0;   ///< at work on this rank's parts of buffers
  double seconds_filling = 0;   ///< copying, and waiting for room
  double seconds_storage = 0;   ///< of the I/O threads of this rank at work
  double seconds_messages = 0;  ///< in which messages were under way
  std::uint64_t bytes_storage = 0;
};

}  // namespace outcrop::aggregate
