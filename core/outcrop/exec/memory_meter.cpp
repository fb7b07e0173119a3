#include "outcrop/exec/memory_meter.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/stream_loops.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t line_bytes = 64, line_doubles = line_bytes / sizeof(double);

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::uint64_t next_random(std::uint64_t &state) {  // xorshift64* (Vigna 2016)
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1D;
}

// The result counts as used: the loops that made it stay.
template <typename Value>
void use(const Value &value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// Arrays of one thread.
struct Part {
  double *a, *b, *c;
  std::size_t count;
};

// In eight streams at once: one has too few lines on their way to be limited by memory. Sums are of bits, since those of
// doubles have an order, which is slower.
void read(const Part &part) {
  constexpr std::size_t streams = 8;
  const std::size_t length = part.count / streams / line_doubles * line_doubles;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < length; i += line_doubles)
    for (std::size_t stream = 0; stream < streams; ++stream) {
      std::uint64_t line[line_doubles];
      std::memcpy(line, part.a + stream * length + i, line_bytes);
      for (const std::uint64_t bits : line) sum += bits;
    }
  use(sum);
}

void write(const Part &part) {
  for (std::size_t i = 0; i < part.count; ++i) part.a[i] = stream_scalar;
}

// One array of a thread's part, to read or to write.
std::span<double> all(double *values, const Part &part) { return {values, part.count}; }

struct Loop {
  const char *name;
  void (*run)(const Part &part);
  std::size_t arrays;  // that it names
};

constexpr Loop loops[] = {
    {"read", read, 1},
    {"write", write, 1},
    {"copy", [](const Part &part) { stream_copy(all(part.a, part), all(part.c, part)); }, 2},
    {"scale", [](const Part &part) { stream_scale(all(part.c, part), all(part.b, part)); }, 2},
    {"add", [](const Part &part) { stream_add(all(part.a, part), all(part.b, part), all(part.c, part)); }, 3},
    {"triad", [](const Part &part) { stream_triad(all(part.b, part), all(part.c, part), all(part.a, part)); }, 3},
};

}  // namespace

MemoryMeter::MemoryMeter(Placement placement, std::size_t array_bytes, const std::vector<unsigned> &nodes)
    : team_(std::move(placement)),
      memory_(3 * round_up(array_bytes, AlignedMemory::huge_bytes)),
      count_(round_up(array_bytes, AlignedMemory::huge_bytes) / sizeof(double)),
      a_(reinterpret_cast<double *>(memory_.data())),
      b_(a_ + count_),
      c_(b_ + count_) {
  const bool taken = nodes.empty() || (nodes.size() == 1 ? bind_memory(memory_.data(), memory_.size(), nodes[0])
                                                         : interleave_memory(memory_.data(), memory_.size(), nodes));
  if (!taken) throw InputError("the system does not let memory be taken from a NUMA node of one's choice");
  best_seconds(0, [&](unsigned member) {  // each thread is the first to touch its own part
    const std::size_t begin = count_ * member / team_.size(), end = count_ * (member + 1) / team_.size();
    std::fill(a_ + begin, a_ + end, 1.0);
    std::fill(b_ + begin, b_ + end, 2.0);
    std::fill(c_ + begin, c_ + end, 0.0);
  });
}

double MemoryMeter::best_seconds(int repeats, const Team::Job &job) {
  const BoundThread bound = team_.bind_caller();
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const Clock::time_point start = Clock::now();
    team_.run(job);
    if (repeat > 0) best = std::min(best, seconds_since(start));
  }
  return best;
}

double MemoryMeter::bandwidth(const std::string &name, int repeats) {
  const auto *const loop =
      std::find_if(std::begin(loops), std::end(loops), [&](const Loop &one) { return one.name == name; });
  if (loop == std::end(loops)) throw InputError("no such loop over memory: " + name);
  const double seconds = best_seconds(repeats, [&](unsigned member) {
    const std::size_t begin = count_ * member / team_.size(), end = count_ * (member + 1) / team_.size();
    loop->run({a_ + begin, b_ + begin, c_ + begin, end - begin});
  });
  return static_cast<double>(loop->arrays * count_ * sizeof(double)) / seconds;
}

double MemoryMeter::random_bandwidth(bool write) {
  const std::size_t lines = count_ / line_doubles / team_.size();  // of each thread
  const double seconds = best_seconds(1, [&](unsigned member) {
    double *const own = a_ + member * lines * line_doubles;
    std::uint64_t state = member + 1, sum = 0;
    for (std::size_t i = 0; i < lines; ++i) {
      double *line = own + ((next_random(state) >> 32) * lines >> 32) * line_doubles;  // a division would take longer
      if (write) {
        for (std::size_t k = 0; k < line_doubles; ++k) line[k] = stream_scalar;
      } else {
        std::uint64_t bits = 0;
        std::memcpy(&bits, line, sizeof bits);
        sum += bits;
      }
    }
    use(sum);
  });
  return static_cast<double>(lines * team_.size() * line_bytes) / seconds;
}

double MemoryMeter::latency() {
  const std::size_t lines = count_ / line_doubles, steps = std::min<std::size_t>(lines, 1'000'000);
  std::vector<std::uint32_t> cycle(lines);
  for (std::size_t i = 0; i < lines; ++i) cycle[i] = static_cast<std::uint32_t>(i);
  std::uint64_t state = 1;
  for (std::size_t i = lines - 1; i > 0; --i) std::swap(cycle[i], cycle[next_random(state) % i]);  // Sattolo: one cycle
  auto *const chain = reinterpret_cast<std::uint64_t *>(b_);
  for (std::size_t i = 0; i < lines; ++i) chain[i * line_doubles] = cycle[i] * line_doubles;
  const BoundThread bound = team_.bind_caller();
  std::uint64_t at = 0;
  const Clock::time_point start = Clock::now();
  for (std::size_t i = 0; i < steps; ++i) at = chain[at];
  use(at);
  const double seconds = seconds_since(start);
  std::fill(b_, b_ + count_, 2.0);
  return seconds / static_cast<double>(steps);
}

}  // namespace outcrop
