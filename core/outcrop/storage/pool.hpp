// A store whose transfers are plain blocking calls, made by a pool of threads: the base of three backends.
//
//     submit ──► todo ──► threads: move() ──► ready ──► reap
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "outcrop/storage/store.hpp"

namespace outcrop {

class PoolStore : public Store {
 public:
  PoolStore(std::vector<File> files, std::size_t depth);
  ~PoolStore() override;

  std::size_t depth() const override { return ready_.size(); }
  void submit(std::span<const Transfer> transfers) override;
  std::size_t reap(std::span<Completion> completions, bool wait) override;

 protected:
  /// Makes one transfer, from any thread of the pool: bytes moved or -errno. The derived class must call stop() in its
  /// destructor, since this function goes with it.
  virtual std::int64_t move(const Transfer &transfer) = 0;

  /// Ends the threads, finishing what was submitted.
  void stop();

  /// pread or pwrite.
  std::int64_t move_by_call(const Transfer &transfer) const;

 private:
  // A queue of at most `depth` elements that never allocates.
  template <typename T>
  class Queue {
   public:
    explicit Queue(std::size_t size) : ring_(size) {}
    std::size_t size() const { return ring_.size(); }
    std::size_t count() const { return count_; }
    void push(const T &value) { ring_[(first_ + count_++) % ring_.size()] = value; }
    T pop() {
      const T value = ring_[first_];
      first_ = (first_ + 1) % ring_.size();
      --count_;
      return value;
    }

   private:
    std::vector<T> ring_;
    std::size_t first_ = 0, count_ = 0;
  };

  void start_threads();
  void work();

  std::mutex mutex_;
  std::condition_variable todo_changed_, ready_changed_;
  Queue<Transfer> todo_;
  Queue<Completion> ready_;
  std::size_t in_flight_ = 0;  // submitted and not reaped
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace outcrop
