#include "outcrop/exec/placement.hpp"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <utility>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

// Where a node has room for one more thread: on a free core, on a free processor of a core in use, nowhere.
enum class Room { core, processor, none };

Room room(const NumaNode &node, unsigned threads) {
  if (threads < node.cores) return Room::core;
  return threads < node.processors.size() ? Room::processor : Room::none;
}

// Threads of each node: each goes to where it finds the most room, and of these to where it gets the largest share of cores.
std::vector<unsigned> threads_of_nodes(const std::vector<NumaNode> &nodes, unsigned threads) {
  std::vector<unsigned> counts(nodes.size(), 0);
  const auto is_better = [&](std::size_t a, std::size_t b) {
    const Room room_a = room(nodes[a], counts[a]), room_b = room(nodes[b], counts[b]);
    if (room_a != room_b) return room_a < room_b;
    return std::uint64_t{counts[a] + 1} * nodes[b].cores < std::uint64_t{counts[b] + 1} * nodes[a].cores;
  };
  for (unsigned thread = 0; thread < threads; ++thread) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < nodes.size(); ++i)
      if (is_better(i, best)) best = i;
    ++counts[best];
  }
  return counts;
}

bool can_bind(const Placement &placement) {
  return std::all_of(placement.threads.begin(), placement.threads.end(),
                     [](const Place &place) { return BoundThread(place.processor).is_bound(); });
}

}  // namespace

Placement unbound(unsigned threads) {
  assert(threads >= 1);
  return Placement{std::vector<Place>(threads), {threads}, {0}, false};
}

Placement spread(const Topology &topology, unsigned threads) {
  assert(threads >= 1 && !topology.nodes.empty());
  const std::vector<unsigned> counts = threads_of_nodes(topology.nodes, threads);
  Placement placement{{}, {}, {}, false};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const std::vector<unsigned> &processors = topology.nodes[i].processors;
    for (unsigned k = 0; k < counts[i]; ++k)
      placement.threads.push_back({placement.nodes(), processors[k % processors.size()]});
    placement.node_threads.push_back(counts[i]);
    placement.node_indices.push_back(topology.nodes[i].os_index);
  }
  return placement;
}

Placement place_threads(unsigned threads, Bind bind, const std::string &synthetic) {
  if (bind == Bind::none) return unbound(threads);
  if (bind == Bind::cores && !has_hwloc())
    throw InputError("threads cannot be bound: this version was built without hwloc");
  const Topology topology = synthetic.empty() ? system_topology() : synthetic_topology(synthetic);
  if (bind == Bind::cores && !topology.is_this_system)
    throw InputError("threads cannot be bound to cores of a topology that is not this system's");
  if (bind == Bind::automatic && topology.nodes.size() == 1) return unbound(threads);
  Placement placement = spread(topology, threads);
  placement.is_bound = topology.is_this_system && can_bind(placement);
  if (placement.is_bound || !topology.is_this_system) return placement;
  if (bind == Bind::cores) throw InputError("threads cannot be bound: the system refuses");
  return unbound(threads);
}

std::vector<std::size_t> cut_in_proportion(std::size_t total, const std::vector<unsigned> &weights) {
  const std::size_t sum = std::accumulate(weights.begin(), weights.end(), std::size_t{0});
  std::vector<std::size_t> first{0};
  std::size_t so_far = 0;
  for (const unsigned weight : weights) {
    so_far += weight;
    first.push_back(total / sum * so_far + total % sum * so_far / sum);  // total * so_far may be too large
  }
  return first;
}

}  // namespace outcrop
