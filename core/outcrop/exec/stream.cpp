#include "outcrop/exec/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>

#include "outcrop/base/round.hpp"
#include "outcrop/exec/first_failure.hpp"
#include "outcrop/exec/parallel_flush.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t page_doubles = 4096 / sizeof(double);
constexpr unsigned flushing_threads_least = 8;  // a device's queue wants to be full

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Stream::Part Stream::part_of(unsigned member, std::size_t count) const {
  const std::size_t pages = round_up(count, page_doubles) / page_doubles;
  const std::size_t begin = std::min(count, pages * member / team_.size() * page_doubles);
  return {begin, std::min(count, pages * (member + 1) / team_.size() * page_doubles) - begin};
}

void Stream::fill(std::span<double> values, double value) {
  const BoundThread bound = team_.bind_caller();
  team_.run([&](unsigned member) {
    const Part part = part_of(member, values.size());
    std::ranges::fill(values.subspan(part.begin, part.length), value);
  });
}

bool Stream::holds(std::span<const double> values, double value) {
  std::atomic<bool> all{true};
  team_.run([&](unsigned member) {
    const Part part = part_of(member, values.size());
    if (!std::ranges::all_of(values.subspan(part.begin, part.length), [&](double one) { return one == value; }))
      all = false;
  });
  return all;
}

std::size_t Stream::flushed_at_once(const Mapping &mapping) { return mapping.is_synchronous() ? 1 : page_doubles; }

StreamSeconds Stream::run(StreamLoop loop, std::span<const double> first, std::span<const double> second,
                          std::span<double> result, StreamFlush flush, const Mapping *mapping) {
  assert(first.size() == result.size() && second.size() == result.size());
  assert(flush == StreamFlush::none || mapping != nullptr);
  const std::size_t at_once = flush == StreamFlush::individual ? flushed_at_once(*mapping) : result.size();
  const auto offset = [&](std::size_t i) {
    return static_cast<std::size_t>(reinterpret_cast<const std::byte *>(&result[i]) - mapping->data());
  };
  FirstFailure failure;
  const BoundThread bound = team_.bind_caller();
  const Clock::time_point start = Clock::now();
  team_.run([&](unsigned member) {
    const Part part = part_of(member, result.size());
    failure.guard([&] {
      for (std::size_t i = part.begin; i < part.begin + part.length; i += at_once) {
        const std::size_t length = std::min(at_once, part.begin + part.length - i);
        loop(first.subspan(i, length), second.subspan(i, length), result.subspan(i, length));
        if (flush == StreamFlush::individual) mapping->flush(offset(i), length * sizeof(double));
      }
    });
  });
  failure.rethrow();
  StreamSeconds seconds{seconds_since(start), 0};
  if (flush == StreamFlush::collective && !result.empty()) {
    const Clock::time_point looped = Clock::now();
    flush_in_parallel(*mapping, offset(0), result.size_bytes(), std::max(flushing_threads_least, team_.size()));
    seconds.flush = seconds_since(looped);
  }
  return seconds;
}

}  // namespace outcrop
