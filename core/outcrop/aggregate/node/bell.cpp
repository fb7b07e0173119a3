#include "outcrop/aggregate/node/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace outcrop::aggregate {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

// Sequential consistency of both counters: either the ringer sees the sleeper, or the system sees the new count and does
// not let it sleep. A sleeper that dies leaves its count behind, which costs later rings one call.
void Bell::ring() {
  rings_.fetch_add(1);
  if (sleepers_.load() > 0) syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(std::uint32_t heard, std::uint32_t microseconds_most) {
  const timespec most{static_cast<time_t>(microseconds_most / 1000000),
                      static_cast<long>(microseconds_most % 1000000) * 1000};
  sleepers_.fetch_add(1);
  if (rings_.load() == heard) syscall(SYS_futex, &rings_, FUTEX_WAIT, heard, &most, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace outcrop::aggregate
