#include "outcrop/storage/meter.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/mapping.hpp"

namespace outcrop {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns the next number of SplitMix64 (Steele, Lea, Flood 2014). The numbers of this generator are good random
// numbers for every seed.
std::uint64_t next_random(std::uint64_t &state) {
  std::uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Fills a buffer with noise, because devices and file systems may be faster with zeros or repeated blocks.
void fill_with_noise(std::byte *data, std::size_t size) {
  std::uint64_t state = 1;
  for (std::size_t i = 0; i + sizeof state <= size; i += sizeof state) {
    const std::uint64_t value = next_random(state);
    std::memcpy(data + i, &value, sizeof value);
  }
}

// Computes the offsets of successive requests, within the `size` bytes from byte `begin` on.
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

// Runs the requests of one thread. `move` makes one request and returns 0 or an errno. Several small requests share one
// reading of the clock, because reading the clock takes as long as a small request.
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
  // At a page fault, the system reads this number of bytes around the address. If the next request is in another part
  // of the file, the additional bytes are not used.
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
