// This file connects two ends by sockets, for tests of links. A relay between the two ends can forward bytes in parts
// of random length and after random delays. The relay can also damage a byte.
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop {

struct SocketPair {
  Descriptor first, second;

  SocketPair() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socket pair");
    first.reset(ends[0]);
    second.reset(ends[1]);
  }
};

/// Connects two ends, `left` and `right`, by a slow connection. The destructor closes the connection.
class Relay {
 public:
  /// `max_delay` is the maximum delay of a part. If `one_way` is true, only bytes from left to right are delayed. If
  /// `damaged_byte` is not negative, the byte with this number is changed on its way from left to right.
  Relay(unsigned seed, std::chrono::microseconds max_delay, std::int64_t damaged_byte = -1, bool one_way = false) {
    const std::chrono::microseconds back = one_way ? std::chrono::microseconds(0) : max_delay;
    const int left_inside = left_.second.get(), right_inside = right_.first.get();
    threads_[0] = std::thread([=] { forward(left_inside, right_inside, seed, max_delay, damaged_byte); });
    threads_[1] = std::thread([=] { forward(right_inside, left_inside, seed + 1, back, -1); });
  }
  ~Relay() {
    cut();
    for (std::thread &thread : threads_) thread.join();
  }
  Relay(const Relay &) = delete;
  Relay &operator=(const Relay &) = delete;

  int left() const { return left_.first.get(); }
  int right() const { return right_.second.get(); }

  /// Ends the connection, as if the network had failed.
  void cut() {
    shutdown(left_.second.get(), SHUT_RDWR);
    shutdown(right_.first.get(), SHUT_RDWR);
  }

 private:
  static void forward(int from, int to, unsigned seed, std::chrono::microseconds max_delay, std::int64_t damaged_byte) {
    std::mt19937 random(seed);
    std::vector<std::byte> part(1 << 16);
    for (std::int64_t done = 0;;) {
      const std::size_t most = random() % 2 == 0 ? part.size() : 4096;
      const ssize_t length = recv(from, part.data(), 1 + random() % most, 0);
      if (length <= 0) break;
      if (damaged_byte >= done && damaged_byte < done + length)
        part[static_cast<std::size_t>(damaged_byte - done)] ^= std::byte{16};
      done += length;
      if (max_delay.count() > 0 && random() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<unsigned>(max_delay.count())));
      for (ssize_t sent = 0; sent < length;) {
        const ssize_t more = send(to, part.data() + sent, static_cast<std::size_t>(length - sent), MSG_NOSIGNAL);
        if (more <= 0) return;
        sent += more;
      }
    }
    shutdown(to, SHUT_WR);
  }

  SocketPair left_, right_;
  std::array<std::thread, 2> threads_;
};

}  // namespace outcrop
