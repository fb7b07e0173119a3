// A team of threads that run one job at a time, the caller being member 0.
//
// Not OpenMP, because a slab's tiles are handed out by tickets and wait for their own predecessors only (see tiles.hpp);
// there is no loop to share out, no barrier inside a slab, and every synchronisation is visible to the thread
// sanitizer. Between jobs members spin for a moment (slabs follow each other within microseconds), then sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace outcrop {

/// Tells the processor that this is a waiting loop.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  using Job = std::function<void(unsigned member)>;

  /// Starts `size - 1` threads; size >= 1.
  explicit Team(unsigned size);
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  unsigned size() const { return static_cast<unsigned>(threads_.size()) + 1; }

  /// Runs job(0) .. job(size-1) at once and returns when all have returned. Jobs must not throw.
  void run(const Job &job);

  /// Runs body(i) for 0 <= i < count, indices handed out one at a time.
  void for_each(long count, const std::function<void(long)> &body);

  /// Writes zeros over `size` bytes in pieces of a huge page, so that they are resident and near the threads that use them.
  void touch(std::byte *data, std::size_t size);

 private:
  void serve(unsigned member);

  std::vector<std::thread> threads_;
  const Job *job_ = nullptr;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace outcrop
