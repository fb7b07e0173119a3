// Waiting for another thread or process, asleep: machines are often oversubscribed, and who spins takes the processor from
// the one it waits for.
//
//     waiter: heard = listen(); look at what it waits for; not there: sleep(heard)
//     other:  make it so; ring()
//
// A ring between the look and the sleep is not lost: the sleep ends at once. Works in memory shared by processes, where all
// bytes zero is a bell that nobody has rung.
#pragma once

#include <atomic>
#include <cstdint>

namespace outcrop::aggregate {

class alignas(64) Bell {
 public:
  std::uint32_t listen() const { return rings_.load(); }
  void ring();
  /// Until it rings, for so many microseconds at most. May return earlier.
  void sleep(std::uint32_t heard, std::uint32_t microseconds_most);

 private:
  std::atomic<std::uint32_t> rings_{0}, sleepers_{0};
};

}  // namespace outcrop::aggregate
