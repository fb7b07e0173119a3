#include "outcrop/exec/ownership.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/node_queues.hpp"
#include "outcrop/exec/topology.hpp"

namespace outcrop {
namespace {

constexpr std::size_t page_bytes = AlignedMemory::huge_bytes;

std::size_t smallest_part_bytes(std::size_t slot_bytes, const std::vector<unsigned> &node_threads) {
  const unsigned all = std::accumulate(node_threads.begin(), node_threads.end(), 0U);
  return slot_bytes / all * *std::min_element(node_threads.begin(), node_threads.end());
}

// `base` begins a page.
std::byte *nearest_page(std::byte *base, std::byte *data) {
  const auto distance = static_cast<std::size_t>(data - base);
  return base + (distance + page_bytes / 2) / page_bytes * page_bytes;
}

// Collects parts from the places where they begin.
class Parts {
 public:
  Parts(std::byte *first, std::byte *end) : next_(first), end_(end) {}

  void begin(std::byte *data, unsigned node) {
    close(std::clamp(data, next_, end_));
    node_ = node;
  }
  std::vector<MemoryPart> take() {
    close(end_);
    return std::move(parts_);
  }

 private:
  void close(std::byte *end) {
    const auto size = static_cast<std::size_t>(end - next_);
    if (size == 0) return;
    if (!parts_.empty() && parts_.back().node == node_)
      parts_.back().size += size;
    else
      parts_.push_back({next_, size, node_});
    next_ = end;
  }

  std::byte *next_, *const end_;
  unsigned node_ = 0;
  std::vector<MemoryPart> parts_;
};

// Pieces of a huge page, so that the threads of a node can share a part.
std::vector<MemoryPart> pieces_of(const std::vector<MemoryPart> &parts) {
  std::vector<MemoryPart> pieces;
  for (const MemoryPart &part : parts)
    for (std::size_t at = 0; at < part.size; at += page_bytes)
      pieces.push_back({part.data + at, std::min(page_bytes, part.size - at), part.node});
  return pieces;
}

void touch(const std::vector<MemoryPart> &pieces, Team &team) {
  std::vector<unsigned> owners;
  for (const MemoryPart &piece : pieces) owners.push_back(piece.node);
  NodeQueues queues(team.placement().nodes(), owners);
  team.run([&](unsigned member) {
    const unsigned node = team.node_of(member);
    for (std::size_t i = queues.take_own(node); i != NodeQueues::none; i = queues.take_own(node))
      std::memset(pieces[i].data, 0, pieces[i].size);
  });
}

}  // namespace

std::vector<long> first_rows(const Window &window, const std::vector<unsigned> &node_threads) {
  const auto pitch = window.pitch_bytes();
  const Cut &frame = window.frame();
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
  Parts parts(window.data(), window.data() + window.size());
  for (std::size_t i = 0; i < window.rings(); ++i) {
    const Ring &ring = window.ring(i);
    if (smallest_part_bytes(ring.slot_bytes(), node_threads) < page_bytes) return {};
    const std::vector<std::size_t> first = cut_in_proportion(ring.slot_bytes(), node_threads);
    for (long slot = 0; slot < ring.planes(); ++slot)
      for (unsigned node = 0; node < node_threads.size(); ++node)
        parts.begin(nearest_page(window.data(), ring.plane(slot) + first[node]), node);
  }
  return parts.take();
}

void place_memory(const Window &window, Team &team) {
  const Placement &placement = team.placement();
  const BoundThread bound = team.bind_caller();
  const std::vector<MemoryPart> parts =
      placement.nodes() > 1 ? memory_parts(window, placement.node_threads) : std::vector<MemoryPart>{};
  if (parts.empty()) {
    if (placement.is_bound && placement.nodes() > 1)
      interleave_memory(window.data(), window.size(), placement.node_indices);
    team.touch(window.data(), window.size());
    return;
  }
  if (placement.is_bound)
    for (const MemoryPart &part : parts)
      if (!bind_memory(part.data, part.size, placement.node_indices[part.node])) break;  // touching does it as well
  touch(pieces_of(parts), team);
}

}  // namespace outcrop
