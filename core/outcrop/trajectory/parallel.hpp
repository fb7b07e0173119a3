// Divides work that takes milliseconds among a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace outcrop {

/// Calls work(i) for each 0 <= i < count, in ascending order, by at most `threads` threads. The calling thread is one of
/// them. After the first exception no more calls begin, and the exception is rethrown when all threads have ended.
template <typename Work>
void in_parallel(std::uint64_t count, std::uint64_t threads, const Work &work) {
  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto loop = [&] {
    try {
      for (std::uint64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  std::vector<std::jthread> others;
  try {
    for (std::uint64_t i = 1; i < std::min(count, threads); ++i) others.emplace_back(loop);
  } catch (const std::system_error &) {  // the system gives no more threads, so the others do the work
  }
  loop();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace outcrop
