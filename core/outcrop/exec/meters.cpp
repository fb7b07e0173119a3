#include "outcrop/exec/meters.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"
#include "outcrop/storage/checksums.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {

// --- updates, checksums and memory -----------------------------------------------------------------------------------

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns a copy of the grid in which the streaming axis is very long. Therefore no slab of a measurement reaches the
// end of the streaming axis.
Grid endless(Grid grid) {
  grid.nz = std::numeric_limits<int>::max();
  grid.periodic_z = false;
  grid.rim_z_low = std::max(0L, grid.rim_z_low);
  return grid;
}

}  // namespace

UpdateMeter::UpdateMeter(const Grid &grid, Stages stages, ThreadPlacement placement, std::size_t rings,
                         long ring_planes)
    : grid_(endless(grid)),
      stages_(std::move(stages)),
      window_(grid_, std::vector<RingSpec>(rings, {ring_planes, slot_bytes_for(grid.record_bytes), false})),
      team_(std::move(placement)) {
  place_memory(window_, team_);
}

long UpdateMeter::planes_needed(const Grid &grid, long levels, long slab_planes) {
  return slab_planes + grid.skew_z * (levels + 1) + 2 * grid.radius_z;
}

std::vector<double> UpdateMeter::measure(const Tiling &tiling, long levels, long slab_planes, const Rectangle &frame,
                                         const UpdateRegion &region, int repeats, bool shifted) {
  const long planes = planes_needed(grid_, levels, slab_planes);
  const auto cells = static_cast<std::size_t>(frame.rows() * frame.columns());
  std::size_t slot_bytes = slot_bytes_for(cells * grid_.item_bytes + grid_.tail_bytes());
  if (shifted && slot_bytes % AlignedMemory::page_bytes == 0) slot_bytes += shift_bytes;
  const std::vector<RingSpec> rings(window_.rings(), {planes, slot_bytes, false});
  if (Window::bytes(rings) > window_.size())
    throw InputError("slabs of ", slab_planes, " planes and ", levels, " levels do not fit a window of ",
                     window_.size(), " bytes");
  const BoundThread bound = team_.bind_caller();
  Window window(grid_, rings, window_.data());
  window.set_frame(frame);
  Traverse traverse(team_, grid_, window, stages_, tiling, levels);
  const std::atomic<bool> cancelled{false};
  std::vector<double> rates;
  long zeta = grid_.first_plane() + grid_.skew_z * levels;
  for (int repeat = 0; repeat < repeats + 1; ++repeat, zeta += slab_planes) {
    const std::uint64_t before = traverse.cells_updated();
    const Clock::time_point start = Clock::now();
    traverse.update(Slab{zeta, zeta + slab_planes, levels, region}, cancelled);
    const double rate = static_cast<double>(traverse.cells_updated() - before) / seconds_since(start);
    if (repeat > 0) rates.push_back(rate);
  }
  return rates;
}

double measure_checksum_rate(unsigned threads, std::size_t plane_bytes, std::size_t total_bytes) {
  const std::size_t planes = std::max<std::size_t>(threads, total_bytes / plane_bytes);
  const AlignedMemory memory(planes * plane_bytes);
  Team team(threads);
  team.touch(memory.data(), memory.size());
  std::atomic<std::uint32_t> sum{0};
  const Clock::time_point start = Clock::now();
  team.for_each(static_cast<long>(planes), [&](long i) {
    sum += crc32c({memory.data() + static_cast<std::size_t>(i) * plane_bytes, plane_bytes});
  });
  return static_cast<double>(planes * plane_bytes) / seconds_since(start);
}

namespace {

// The loops of STREAM. Each loop processes `count` elements.

constexpr double stream_scalar = 3.0;

// The loop copies one cache line at a time. Without the assembler statement, the compiler would replace the loop with a
// call of memcpy(). For long arrays, memcpy() writes to memory without the caches.
[[gnu::always_inline]] inline void copy(const double *__restrict first, const double *, double *__restrict result,
                                        std::size_t count) {
  std::array<double, 8> line;
  const std::size_t whole = count / line.size() * line.size();
  for (std::size_t i = 0; i < whole; i += line.size()) {
    std::memcpy(line.data(), &first[i], sizeof line);
    std::memcpy(&result[i], line.data(), sizeof line);
    asm volatile("");
  }
  for (std::size_t i = whole; i < count; ++i) result[i] = first[i];
}

[[gnu::always_inline]] inline void scale(const double *__restrict first, const double *, double *__restrict result,
                                         std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result[i] = stream_scalar * first[i];
}

[[gnu::always_inline]] inline void add(const double *__restrict first, const double *__restrict second,
                                       double *__restrict result, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result[i] = first[i] + second[i];
}

[[gnu::always_inline]] inline void triad(const double *__restrict first, const double *__restrict second,
                                         double *__restrict result, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) result[i] = first[i] + stream_scalar * second[i];
}

using Read = std::span<const double>;
using Written = std::span<double>;

template <auto loop>
void plain(Read first, Read second, Written result) {
  loop(first.data(), second.data(), result.data(), result.size());
}

// Compiles the loop `loop` with stores of 32 bytes. In the measurement, the memory should limit the speed. With stores
// of 16 bytes, the core limits the speed. Longer stores are not faster than stores of 32 bytes.
#if defined(__x86_64__)
template <auto loop>
__attribute__((target("avx2"))) void wide(Read first, Read second, Written result) {
  loop(first.data(), second.data(), result.data(), result.size());
}
bool has_wide() { return __builtin_cpu_supports("avx2"); }
#else
template <auto loop>
constexpr StreamLoop wide = plain<loop>;
bool has_wide() { return false; }
#endif

struct NamedLoop {
  const char *name;
  StreamLoop plain, wide;
};

constexpr NamedLoop stream_loops[] = {
    {"copy", plain<copy>, wide<copy>},
    {"scale", plain<scale>, wide<scale>},
    {"add", plain<add>, wide<add>},
    {"triad", plain<triad>, wide<triad>},
};

}  // namespace

StreamLoop find_stream_loop(const std::string &name) {
  const auto *const found = std::ranges::find(stream_loops, name, &NamedLoop::name);
  if (found == std::end(stream_loops)) throw InputError("no such loop of STREAM: ", name);
  return has_wide() ? found->wide : found->plain;
}

namespace {

constexpr std::size_t line_bytes = 64, line_doubles = line_bytes / sizeof(double);
constexpr std::size_t page_doubles = AlignedMemory::page_bytes / sizeof(double);

std::uint64_t next_xorshift(std::uint64_t &state) {  // xorshift64* (Vigna 2016)
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1D;
}

// Uses `value`, so that the compiler does not remove the loops that compute this value.
template <typename Value>
void use(const Value &value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// One thread's parts of the three arrays.
struct ThreadArrays {
  std::span<double> a, b, c;
};

// Reads all elements of array a. The loop reads eight streams at the same time. A single stream has too few cache lines
// in flight to use the full bandwidth. The loop adds the elements as integers. An addition of doubles would be slower,
// because the compiler must not change the order of the additions.
void read(const ThreadArrays &arrays) {
  constexpr std::size_t streams = 8;
  const double *const a = arrays.a.data();
  const std::size_t length = arrays.a.size() / streams / line_doubles * line_doubles;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < length; i += line_doubles)
    for (std::size_t stream = 0; stream < streams; ++stream) {
      std::uint64_t line[line_doubles];
      std::memcpy(line, a + stream * length + i, line_bytes);
      for (const std::uint64_t bits : line) sum += bits;
    }
  use(sum);
}

void write(const ThreadArrays &arrays) {
  for (double &value : arrays.a) value = stream_scalar;
}

struct MemoryLoop {
  const char *name;
  void (*run)(const ThreadArrays &arrays);
  std::size_t named_arrays;
};

constexpr MemoryLoop memory_loops[] = {
    {"read", read, 1},
    {"write", write, 1},
    {"copy", [](const ThreadArrays &arrays) { find_stream_loop("copy")(arrays.a, arrays.a, arrays.c); }, 2},
    {"scale", [](const ThreadArrays &arrays) { find_stream_loop("scale")(arrays.c, arrays.c, arrays.b); }, 2},
    {"add", [](const ThreadArrays &arrays) { find_stream_loop("add")(arrays.a, arrays.b, arrays.c); }, 3},
    {"triad", [](const ThreadArrays &arrays) { find_stream_loop("triad")(arrays.b, arrays.c, arrays.a); }, 3},
};

}  // namespace

MemoryMeter::MemoryMeter(ThreadPlacement placement, std::size_t array_bytes, const std::vector<unsigned> &nodes)
    : team_(std::move(placement)),
      memory_(3 * round_up(array_bytes, AlignedMemory::huge_bytes)),
      count_(round_up(array_bytes, AlignedMemory::huge_bytes) / sizeof(double)),
      a_(reinterpret_cast<double *>(memory_.data())),
      b_(a_ + count_),
      c_(b_ + count_) {
  if (!nodes.empty() && !bind_memory(memory_.data(), memory_.size(), nodes))
    throw InputError("the system refuses to bind memory to NUMA node ", nodes[0]);
  best_seconds(0, [&](unsigned member) {  // each thread is the first thread that touches its part of the arrays
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
  const auto *const loop = std::ranges::find(memory_loops, name, &MemoryLoop::name);
  if (loop == std::end(memory_loops)) throw InputError("no such loop over memory: ", name);
  const double seconds = best_seconds(repeats, [&](unsigned member) {
    const std::size_t begin = count_ * member / team_.size(), end = count_ * (member + 1) / team_.size();
    loop->run({{a_ + begin, a_ + end}, {b_ + begin, b_ + end}, {c_ + begin, c_ + end}});
  });
  return static_cast<double>(loop->named_arrays * count_ * sizeof(double)) / seconds;
}

double MemoryMeter::random_bandwidth(bool write) {
  const std::size_t lines = count_ / line_doubles / team_.size();  // number of cache lines for each thread
  const double seconds = best_seconds(1, [&](unsigned member) {
    double *const own = a_ + member * lines * line_doubles;
    std::uint64_t state = member + 1, sum = 0;
    for (std::size_t i = 0; i < lines; ++i) {
      // choose a random line by a multiplication and a shift, which are faster than a division
      double *line = own + ((next_xorshift(state) >> 32) * lines >> 32) * line_doubles;
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
  for (std::size_t i = lines - 1; i > 0; --i)
    std::swap(cycle[i], cycle[next_xorshift(state) % i]);  // Sattolo's shuffle
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

Stream::PartOfThread Stream::part_of(unsigned member, std::size_t count) const {
  const std::size_t pages = round_up(count, page_doubles) / page_doubles;
  const std::size_t begin = std::min(count, pages * member / team_.size() * page_doubles);
  return {begin, std::min(count, pages * (member + 1) / team_.size() * page_doubles) - begin};
}

void Stream::fill(std::span<double> values, double value) {
  const BoundThread bound = team_.bind_caller();
  team_.run([&](unsigned member) {
    const PartOfThread part = part_of(member, values.size());
    std::ranges::fill(values.subspan(part.begin, part.length), value);
  });
}

bool Stream::holds(std::span<const double> values, double value) {
  std::atomic<bool> all{true};
  team_.run([&](unsigned member) {
    const PartOfThread part = part_of(member, values.size());
    if (!std::ranges::all_of(values.subspan(part.begin, part.length), [&](double one) { return one == value; }))
      all = false;
  });
  return all;
}

std::size_t Stream::flushed_at_once(const Mapping &mapping) { return mapping.synchronous() ? 1 : page_doubles; }

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
    const PartOfThread part = part_of(member, result.size());
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
    constexpr unsigned min_flushing_threads = 8;  // with fewer threads, a device does not reach its full speed
    const Clock::time_point looped = Clock::now();
    flush_in_parallel(*mapping, offset(0), result.size_bytes(), std::max(min_flushing_threads, team_.size()));
    seconds.flush = seconds_since(looped);
  }
  return seconds;
}

// --- transfers -------------------------------------------------------------------------------------------------------

namespace {

// Returns the next number of SplitMix64 (Steele, Lea, Flood 2014). The numbers of SplitMix64 are good random numbers
// for every seed.
std::uint64_t next_random(std::uint64_t &state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Fills a buffer with noise. Devices and file systems may be faster with zeros or repeated blocks.
void fill_with_noise(std::byte *data, std::size_t size) {
  std::uint64_t state = 1;
  for (std::size_t i = 0; i + sizeof state <= size; i += sizeof state) {
    const std::uint64_t value = next_random(state);
    std::memcpy(data + i, &value, sizeof value);
  }
}

// Computes the offsets of successive requests. The offsets lie within the `size` bytes from byte `begin` on.
struct Offsets {
  const Workload &workload;
  std::uint64_t begin, size, seed, at = 0;

  std::uint64_t next() {
    const std::uint64_t place = workload.random ? next_random(seed) : at++;
    return begin + place % (size / workload.request_bytes) * workload.request_bytes;
  }
};

void check(const Workload &workload, std::size_t max_depth) {
  if (workload.request_bytes == 0 || workload.span_bytes / workload.request_bytes < workload.depth)
    throw InputError("a span of ", workload.span_bytes, " bytes is too small for ", workload.depth, " requests of ",
                     workload.request_bytes);
  if (workload.depth == 0 || workload.depth > max_depth)
    throw InputError("depth ", workload.depth, " must be from 1 to ", max_depth);
}

struct Share {
  std::uint64_t requests = 0;
  int error = 0;
};

// Runs the requests of one thread. `move` makes one request and returns 0 or an errno. The clock is read only once for
// several small requests, because a read of the clock takes as long as a small request.
template <typename Move>
Share move_requests(const Workload &workload, Offsets offsets, Clock::time_point start, const Move &move) {
  constexpr std::size_t bytes_per_reading = std::size_t{64} << 10;
  const std::uint64_t requests =
      std::max<std::uint64_t>(1, workload.total_bytes / workload.depth / workload.request_bytes);
  const std::uint64_t between = std::max<std::uint64_t>(1, bytes_per_reading / workload.request_bytes);
  std::vector<std::byte> buffer(round_up(workload.request_bytes, sizeof(std::uint64_t)));
  fill_with_noise(buffer.data(), buffer.size());
  Share share;
  for (; share.requests < requests && share.error == 0; ++share.requests) {
    if (share.requests > 0 && share.requests % between == 0 && seconds_since(start) > workload.max_seconds) break;
    share.error = move(offsets.next(), buffer.data());
  }
  return share;
}

}  // namespace

Moved measure_transfers(Store &store, const Workload &workload) {
  check(workload, store.depth());
  const std::size_t slot_bytes = round_up(workload.request_bytes, AlignedMemory::page_bytes);
  const AlignedMemory memory(slot_bytes * workload.depth);
  fill_with_noise(memory.data(), memory.size());
  Offsets offsets{workload, 0, workload.span_bytes, 1};
  const auto request_in = [&](std::uint64_t slot) {
    return Transfer{workload.write, 0, offsets.next(), memory.data() + slot * slot_bytes, workload.request_bytes, slot};
  };

  Moved moved;
  const Clock::time_point start = Clock::now();
  std::vector<Transfer> in_slots;
  for (std::uint64_t slot = 0; slot < workload.depth; ++slot) in_slots.push_back(request_in(slot));
  store.submit(in_slots);
  std::uint64_t asked = workload.request_bytes * workload.depth;
  std::size_t in_flight = workload.depth;
  int error = 0;
  std::vector<Completion> completions(workload.depth);
  while (in_flight > 0) {
    const std::size_t count = store.reap(completions, true);
    const bool more = error == 0 && seconds_since(start) < workload.max_seconds;
    for (const Completion &one : std::span(completions).first(count)) {
      Transfer &transfer = in_slots[one.tag];
      const bool must_repeat = one.result == -EAGAIN || one.result == -EINTR;
      if (!must_repeat) {
        if (one.result <= 0) error = one.result == 0 ? ENODATA : static_cast<int>(-one.result);
        if (one.result > 0) moved.bytes += static_cast<std::uint64_t>(one.result), ++moved.requests;
        if (!more || error != 0 || asked >= workload.total_bytes) {
          --in_flight;
          continue;
        }
        asked += workload.request_bytes;
        transfer = request_in(one.tag);
      }
      // requests are not sent in batches: the device would be idle before each batch
      store.submit({&transfer, 1});
    }
  }
  if (error != 0)
    throw StorageError(workload.write ? "write" : "read", store.path(0), 0, workload.request_bytes, error);
  if (workload.flush) store.flush();
  moved.seconds = seconds_since(start);
  return moved;
}

Moved measure_threads(const std::string &path, bool mapped, const Workload &workload) {
  constexpr std::size_t max_threads = 1024;
  check(workload, max_threads);
  File file = File::open(path, workload.write, false);
  if (mapped && file.size() < workload.span_bytes) throw StorageError("map", path, 0, workload.span_bytes, ENODATA);
  std::optional<Mapping> mapping;
  if (mapped) {
    file.narrow(0, workload.span_bytes);
    mapping.emplace(file);
  }
  // At a page fault, the system reads this number of bytes around the address. Smaller random requests would not use
  // the additional bytes.
  constexpr std::size_t read_ahead_bytes = std::size_t{128} << 10;
  if (mapping && workload.random && workload.request_bytes < read_ahead_bytes)
    madvise(mapping->data(), mapping->size(), MADV_RANDOM);

  const std::size_t length = workload.request_bytes;
  const auto load_or_store = [&](std::uint64_t offset, std::byte *data) {
    std::byte *place = mapping->data() + offset;
    std::memcpy(workload.write ? place : data, workload.write ? data : place, length);
    asm volatile("" : : "r"(data) : "memory");  // the compiler must keep the load
    return 0;
  };
  const auto call = [&](std::uint64_t offset, std::byte *data) {
    const auto at = static_cast<off_t>(offset);
    const ssize_t moved = workload.write ? pwrite(file.buffered_descriptor(), data, length, at)
                                         : pread(file.buffered_descriptor(), data, length, at);
    if (moved < 0) return errno;
    return static_cast<std::size_t>(moved) == length ? 0 : ENODATA;
  };
  const Clock::time_point start = Clock::now();
  const std::size_t threads = workload.depth;
  const std::uint64_t part = round_down(workload.span_bytes / threads, workload.request_bytes);
  std::vector<Share> shares(threads);
  const auto work = [&](std::size_t i) {
    const Offsets offsets =
        workload.random ? Offsets{workload, 0, workload.span_bytes, i + 1} : Offsets{workload, i * part, part, 1};
    shares[i] = mapping ? move_requests(workload, offsets, start, load_or_store)
                        : move_requests(workload, offsets, start, call);
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
  }
  Moved moved;
  for (const Share &share : shares) {
    if (share.error != 0)
      throw StorageError(workload.write ? "write" : "read", path, 0, workload.request_bytes, share.error);
    moved.requests += share.requests;
  }
  if (workload.flush && mapping) mapping->flush(0, mapping->size());
  if (workload.flush && !mapping) file.flush();
  moved.seconds = seconds_since(start);
  moved.bytes = moved.requests * workload.request_bytes;
  return moved;
}

}  // namespace outcrop
