// A limit to what may never return: calls of MPI that all ranks make together, where one MPI or another is known to hang.
//
// There is no way back out of such a call, and nothing of MPI works beside it, its end neither. So the process ends, with a
// line that says what to do; mpirun then ends the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace outcrop::aggregate {

class Deadline {
 public:
  Deadline(std::chrono::duration<double> most, std::string line)
      : line_(std::move(line)), thread_([this, most] { watch(most); }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline &) = delete;
  Deadline &operator=(const Deadline &) = delete;

 private:
  void watch(std::chrono::duration<double> most) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, most, [this] { return over_; })) return;
    std::fprintf(stderr, "%s\n", line_.c_str());
    std::_Exit(1);
  }

  const std::string line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // the last: it uses what is above
};

}  // namespace outcrop::aggregate
