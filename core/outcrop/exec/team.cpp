#include "outcrop/exec/team.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "outcrop/base/error.hpp"
#include "outcrop/base/rounding.hpp"

namespace outcrop {
namespace {

constexpr int spins_before_sleep = 2000;

// Waits until `value` is no longer `old`: first spinning, then asleep.
std::uint32_t await_change(const std::atomic<std::uint32_t> &value, std::uint32_t old) {
  for (int spin = 0; spin < spins_before_sleep; ++spin) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_processor();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

Team::Team(Placement placement) : placement_(std::move(placement)) {
  assert(size() >= 1);
  threads_.reserve(size() - 1);
  try {
    for (unsigned member = 1; member < size(); ++member) threads_.emplace_back([this, member] { serve(member); });
  } catch (const std::system_error &error) {
    stop();
    throw InputError(std::to_string(size()) + " threads are more than the system gives (" + error.code().message() +
                     "); ask for fewer");
  }
}

Team::~Team() { stop(); }

void Team::stop() {
  stopping_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_acq_rel);
  epoch_.notify_all();
  for (std::thread &thread : threads_) thread.join();
}

void Team::run(const Job &job) {
  job_ = &job;
  busy_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_acq_rel);
  epoch_.notify_all();
  {
    const StandardRounding standard;
    job(0);
  }
  for (std::uint32_t left = busy_.load(std::memory_order_acquire); left != 0;) left = await_change(busy_, left);
}

void Team::for_each(long count, const std::function<void(long)> &body) {
  std::atomic<long> next{0};
  run([&](unsigned) {
    for (long i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
  });
}

void Team::touch(std::byte *data, std::size_t size) {
  constexpr std::size_t piece = std::size_t{2} << 20;
  for_each(static_cast<long>((size + piece - 1) / piece), [&](long i) {
    const std::size_t begin = static_cast<std::size_t>(i) * piece;
    std::memset(data + begin, 0, std::min(piece, size - begin));
  });
}

void Team::serve(unsigned member) {
  const BoundThread bound(placement_.processor(member));
  const StandardRounding standard;
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t now = epoch_.load(std::memory_order_acquire);
    while (now == seen) now = await_change(epoch_, seen);
    seen = now;
    if (stopping_.load(std::memory_order_acquire)) return;
    (*job_)(member);
    busy_.fetch_sub(1, std::memory_order_acq_rel);
    busy_.notify_one();
  }
}

}  // namespace outcrop
