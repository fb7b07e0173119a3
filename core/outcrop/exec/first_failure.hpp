// What went wrong first in a team's job, whose members must not throw.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace outcrop {

class FirstFailure {
 public:
  /// Calls `work`, unless some call has failed already.
  template <typename Work>
  void guard(const Work &work) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  /// Throws it again, if there was any. When the job is over.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> failed_{false};
};

}  // namespace outcrop
