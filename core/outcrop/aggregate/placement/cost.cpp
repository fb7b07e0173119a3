#include "outcrop/aggregate/placement/cost.hpp"

#include <algorithm>
#include <cassert>

namespace outcrop::aggregate {
namespace {

double overlap(double fill, double empty, const Turns &turns) {
  if (turns.buffers < 2 || turns.count < 2) return 0;
  const double share = static_cast<double>(turns.count - 1) / static_cast<double>(turns.count);
  return std::min(fill, empty) * share;
}

}  // namespace

Cost cost(const Gathering &gathering, const Tier &tier, const Surroundings &around, const Turns &turns) {
  const Network &network = around.network;
  const Target &target = around.target;
  assert(around.crowd.on_node > 0 && around.crowd.in_all > 0 && turns.count > 0);
  const double on_node = around.crowd.on_node;
  const double card = network.card_bytes_per_second * std::min(1.0, network.cards_on_node / on_node);
  const double fill = tier.fill_bytes_per_second / on_node;
  const double empty = tier.empty_bytes_per_second / on_node;
  const auto remote_bytes = static_cast<double>(gathering.remote_bytes);
  const auto local_bytes = static_cast<double>(gathering.local_bytes);
  const auto count = static_cast<double>(turns.count);

  Cost cost;
  cost.merge = gathering.seconds_merge;
  cost.messages = std::max(network.latency_seconds, tier.latency_seconds) * gathering.distance;
  cost.transfer = remote_bytes / std::min(card, fill);
  cost.copy = tier.latency_seconds * std::max(1U, gathering.local_ranks) + local_bytes / fill;
  cost.target_latency = target.latency_seconds * count;
  if (target.is_shared) cost.target_latency += network.latency_seconds * around.distance_to_target * count;
  const double path = target.is_shared ? std::min(card, target.bytes_per_second / around.crowd.in_all)
                                       : target.bytes_per_second / on_node;
  cost.target_transfer = (remote_bytes + local_bytes) / std::min(path, empty);
  cost.hidden = overlap(cost.fill(), cost.empty(), turns);
  return cost;
}

double seconds_merge(const SharedMemory &memory, std::uint32_t ranks, std::uint64_t bytes) {
  if (ranks < 2) return 0;
  return memory.latency_seconds * ranks + static_cast<double>(bytes) / memory.bytes_per_second;
}

}  // namespace outcrop::aggregate
