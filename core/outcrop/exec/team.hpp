// A team of threads that run one job at a time, the caller being member 0.
//
// Not OpenMP, because a slab's tiles are handed out by tickets and wait for their own predecessors only (see tiles.hpp);
// there is no loop to share out, no barrier inside a slab, and every synchronisation is visible to the thread
// sanitizer. Between jobs members spin for a moment (slabs follow each other within microseconds), then sleep.
//
// Members are bound to processors where their placement says so. The caller is bound only as long as it wants to be, because
// its thread is not the team's: threads that it starts later would inherit that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "outcrop/exec/placement.hpp"

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

  /// Starts all threads of the placement but the first, which stands for the caller. Throws InputError where the system does
  /// not give so many.
  explicit Team(Placement placement);
  explicit Team(unsigned size) : Team(unbound(size)) {}
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  unsigned size() const { return placement_.size(); }
  const Placement &placement() const { return placement_; }
  unsigned node_of(unsigned member) const { return placement_.threads[member].node; }

  /// The calling thread runs where member 0 belongs as long as the result lives.
  [[nodiscard]] BoundThread bind_caller() const { return BoundThread(placement_.processor(0)); }

  /// Runs job(0) .. job(size-1) at once and returns when all have returned. Jobs must not throw.
  void run(const Job &job);

  /// Runs body(i) for 0 <= i < count, indices handed out one at a time.
  void for_each(long count, const std::function<void(long)> &body);

  /// Writes zeros over `size` bytes in pieces of a huge page, so that they are resident and near the threads that use them.
  void touch(std::byte *data, std::size_t size);

 private:
  void serve(unsigned member);
  void stop();

  const Placement placement_;
  std::vector<std::thread> threads_;
  const Job *job_ = nullptr;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace outcrop
