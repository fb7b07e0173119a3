// A store that misbehaves on purpose, in a way that a seed repeats: for tests of everything above it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// What goes wrong. Rates are probabilities per transfer, between 0 and 1.
struct Faults {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t seed = 0;
  double error_rate = 0;                   ///< fails with EIO
  double again_rate = 0;                   ///< fails with EAGAIN
  double short_rate = 0;                   ///< moves only a part
  double flip_rate = 0;                    ///< flips one bit of what was read
  std::uint64_t full_after_bytes = never;  ///< writes fail with ENOSPC once this much was written
  std::uint64_t error_at = never;          ///< the transfer with this number (from 0) fails with EIO
  std::uint64_t flip_at = never;           ///< the read with this number, writes not counted, has a bit flipped
  std::uint64_t flush_error_at = never;    ///< the flush with this number fails with EIO
  std::uint64_t latency_microseconds = 0;  ///< each completion is seen this much later, at least

  bool any() const { return *this != Faults{.seed = seed}; }
  bool operator==(const Faults &) const = default;
};

/// Wraps a store. With no faults it behaves exactly as the store inside.
std::unique_ptr<Store> make_faulty_store(std::unique_ptr<Store> inside, const Faults &faults);

}  // namespace outcrop
