#include "outcrop/exec/team.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <system_error>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"

namespace outcrop {
namespace {

constexpr int spins_before_sleep = 2000;

// Waits until `value` differs from `old`. The function spins for some time, and then sleeps.
std::uint32_t await_change(const std::atomic<std::uint32_t> &value, std::uint32_t old) {
  for (int spin = 0; spin < spins_before_sleep; ++spin) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_processor();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

constexpr std::size_t page_bytes = AlignedMemory::huge_bytes;

// Touches all pages of the parts. To touch a page means to access it. Only threads of the node that owns a part touch
// the pages of the part.
void touch(const std::vector<MemoryPart> &parts, Team &team) {
  std::vector<MemoryPart> pages;
  std::vector<unsigned> owners;
  for (const MemoryPart &part : parts)
    for (std::size_t at = 0; at < part.size; at += page_bytes) {
      pages.push_back({part.data + at, std::min(page_bytes, part.size - at), part.node});
      owners.push_back(part.node);
    }
  NodeQueues queues(team.placement().nodes(), owners);
  team.run([&](unsigned member) {
    const unsigned node = team.node_of(member);
    for (std::size_t i = queues.take_own(node); i != NodeQueues::none; i = queues.take_own(node))
      std::memset(pages[i].data, 0, pages[i].size);
  });
}

}  // namespace

Team::Team(ThreadPlacement placement) : placement_(std::move(placement)) {
  assert(size() >= 1);
  threads_.reserve(size() - 1);
  try {
    for (unsigned member = 1; member < size(); ++member) threads_.emplace_back([this, member] { serve(member); });
  } catch (const std::system_error &error) {
    stop();
    throw InputError(size(), " threads are more than the system gives (", error.code().message(), "); ask for fewer");
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
  for_each(static_cast<long>((size + page_bytes - 1) / page_bytes), [&](long i) {
    const std::size_t begin = static_cast<std::size_t>(i) * page_bytes;
    std::memset(data + begin, 0, std::min(page_bytes, size - begin));
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

std::vector<std::size_t> cut_in_proportion(std::size_t total, const std::vector<unsigned> &weights) {
  const std::size_t sum = std::accumulate(weights.begin(), weights.end(), std::size_t{0});
  std::vector<std::size_t> first{0};
  std::size_t so_far = 0;
  for (const unsigned weight : weights) {
    so_far += weight;
    first.push_back(total / sum * so_far + total % sum * so_far / sum);  // total * so_far could overflow
  }
  return first;
}

std::vector<long> first_rows(const Window &window, const std::vector<unsigned> &node_threads) {
  const auto pitch = window.pitch_bytes();
  const Rectangle &frame = window.frame();
  std::vector<long> rows;
  for (const std::size_t first : cut_in_proportion(window.ring(0).slot_bytes(), node_threads))
    rows.push_back(std::min(frame.y1, frame.y0 + static_cast<long>((first + pitch - 1) / pitch)));
  rows.back() = frame.y1;
  return rows;
}

unsigned owner_of(long row, const std::vector<long> &first_rows) {
  const auto inner_end = first_rows.end() - 1;
  return static_cast<unsigned>(std::upper_bound(first_rows.begin() + 1, inner_end, row) - first_rows.begin() - 1);
}

std::vector<long> rows_to_begin_at(const std::vector<long> &first_rows) {
  const std::size_t nodes = first_rows.size() - 1;
  if (nodes == 1) return {0};
  std::vector<long> begin;
  for (std::size_t i = (nodes - 1) % 2; i < nodes; i += 2) begin.push_back(first_rows[i]);
  return begin;
}

std::vector<MemoryPart> memory_parts(const Window &window, const std::vector<unsigned> &node_threads) {
  const unsigned all = std::accumulate(node_threads.begin(), node_threads.end(), 0U);
  const unsigned fewest = *std::ranges::min_element(node_threads);
  std::vector<MemoryPart> parts;
  std::size_t next = 0;  // number of bytes of the window that already belong to a part
  const auto add_up_to = [&](std::size_t end, unsigned node) {
    if (end <= next) return;
    if (!parts.empty() && parts.back().node == node)
      parts.back().size += end - next;
    else
      parts.push_back({window.data() + next, end - next, node});
    next = end;
  };
  unsigned before = 0;  // the node that owns the bytes before the next part
  for (std::size_t i = 0; i < window.rings(); ++i) {
    const Ring &ring = window.ring(i);
    if (ring.slot_bytes() / all * fewest < page_bytes) return {};
    const std::vector<std::size_t> first = cut_in_proportion(ring.slot_bytes(), node_threads);
    for (long slot = 0; slot < ring.planes(); ++slot)
      for (unsigned node = 0; node < node_threads.size(); before = node++) {
        const auto begin = static_cast<std::size_t>(ring.plane(slot) + first[node] - window.data());
        add_up_to(std::min(window.size(), (begin + page_bytes / 2) / page_bytes * page_bytes), before);
      }
  }
  add_up_to(window.size(), before);
  return parts;
}

void place_memory(const Window &window, Team &team) {
  const ThreadPlacement &placement = team.placement();
  const BoundThread bound = team.bind_caller();
  const std::vector<MemoryPart> parts =
      placement.nodes() > 1 ? memory_parts(window, placement.node_threads) : std::vector<MemoryPart>{};
  if (parts.empty()) {
    if (placement.bound && placement.nodes() > 1) bind_memory(window.data(), window.size(), placement.node_indices);
    team.touch(window.data(), window.size());
    return;
  }
  if (placement.bound)  // if the system refuses, touch() places the pages instead
    for (const MemoryPart &part : parts)
      if (!bind_memory(part.data, part.size, {placement.node_indices[part.node]})) break;
  touch(parts, team);
}

}  // namespace outcrop
