// This file has two tasks: it sets the floating-point mode of a thread, and it divides work among threads. The bits of
// results depend on the floating-point mode.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace outcrop {

/// Sets the floating-point mode of this thread to the default mode of IEEE 754. In this mode, results are rounded to
/// nearest, and subnormal numbers are kept. The destructor restores the previous mode. Some libraries, such as Devito's
/// operators, change the floating-point mode, and do not restore it. New threads inherit the floating-point mode. A
/// wrong mode would change the results of a run.
class StandardRounding {
 public:
  StandardRounding() : before_(read()) { write(standard); }
  ~StandardRounding() { write(before_); }
  StandardRounding(const StandardRounding &) = delete;
  StandardRounding &operator=(const StandardRounding &) = delete;

  /// Sets the default floating-point mode of this thread permanently. No destructor restores the previous mode.
  static void restore() { write(standard); }

 private:
#if defined(__SSE__)
  using Word = unsigned;
  static constexpr Word standard = 0x1F80;  // in the default mode, no floating-point exception interrupts the program
  static Word read() { return _mm_getcsr(); }
  static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word standard = 0;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" : : "r"(word)); }
#else
  using Word = int;
  static constexpr Word standard = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif

  const Word before_;
};

/// Keeps the first exception that several threads throw while they work.
class FirstFailure {
 public:
  /// Calls `work`. Does nothing if an earlier call of guard() has failed.
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

  /// Rethrows the first exception. Does nothing if there was no exception. No other thread may call guard() during a
  /// call of rethrow().
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> failed_{false};
};

/// Calls work(i) for each i with 0 <= i < count. The calls begin in ascending order. At most `threads` threads,
/// including the calling thread, share these calls. Each call of in_parallel() starts new threads, so the work should
/// take at least some milliseconds. After the first exception, no further calls of `work` begin. When all threads have
/// ended, in_parallel() rethrows the exception.
template <typename Work>
void in_parallel(std::uint64_t count, std::uint64_t threads, const Work &work) {
  std::atomic<std::uint64_t> next = 0;
  FirstFailure failure;
  const auto loop = [&] {
    for (std::uint64_t i = next++; i < count; i = next++) failure.guard([&] { work(i); });
  };
  std::vector<std::jthread> others;
  try {
    for (std::uint64_t i = 1; i < std::min(count, threads); ++i) others.emplace_back(loop);
    // the system refuses to start more threads, so the threads that have already started do all the work
  } catch (const std::system_error &) {
  }
  loop();
  others.clear();
  failure.rethrow();
}

}  // namespace outcrop
