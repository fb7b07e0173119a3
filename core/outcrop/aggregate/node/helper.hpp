// A thread of a rank that does its share of copying while the rank computes. Started on first use; takes turns.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace outcrop::aggregate {

class Helper {
 public:
  Helper() = default;
  ~Helper();

  /// Tasks run one after the other and do not throw.
  void post(std::function<void()> task);
  /// Returns when nothing is left to do.
  void drain();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace outcrop::aggregate
