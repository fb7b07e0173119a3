// Measures the time that the executor spends in each phase.
#pragma once

#include <atomic>
#include <chrono>

namespace outcrop {

/// A timer. The destructor adds the seconds since the construction to a counter.
class Timer {
 public:
  explicit Timer(std::atomic<double> &seconds) : seconds_(seconds) {}
  ~Timer() { seconds_.fetch_add(std::chrono::duration<double>(Clock::now() - start_).count()); }
  Timer(const Timer &) = delete;
  Timer &operator=(const Timer &) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<double> &seconds_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace outcrop
