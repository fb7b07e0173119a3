#include "outcrop/exec/topology.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "outcrop/base/error.hpp"

#ifdef OUTCROP_HAVE_HWLOC

#include <hwloc.h>

namespace outcrop {
namespace {

struct Free {
  void operator()(hwloc_topology *topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s *bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Handle = std::unique_ptr<hwloc_topology, Free>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Free>;

Bitmap empty_bitmap() { return Bitmap(hwloc_bitmap_alloc()); }
Bitmap copy_of(hwloc_const_bitmap_t bitmap) { return Bitmap(hwloc_bitmap_dup(bitmap)); }

// Loads the topology of this system, or of the described system. Returns null if hwloc fails.
Handle load(const char *description) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Handle handle(topology);
  if (description != nullptr) {
    const std::string_view text = description;
    const int result = text.starts_with("<?xml")
                           ? hwloc_topology_set_xmlbuffer(topology, description, static_cast<int>(text.size()) + 1)
                           : hwloc_topology_set_synthetic(topology, description);
    if (result != 0) return nullptr;
  }
  return hwloc_topology_load(topology) == 0 ? std::move(handle) : nullptr;
}

// Returns the topology of this system. Returns null if hwloc fails. The topology is loaded only once.
hwloc_topology *this_system() {
  static const Handle handle = load(nullptr);
  return handle.get();
}

Handle load_or_throw(const std::string &description) {
  Handle topology = load(description.c_str());
  if (topology == nullptr)
    throw InputError("topology '", description, "' is not understood; write for example 'numa:2 core:4 pu:1'");
  return topology;
}

// Returns a value that the firmware reports for this memory, such as its bandwidth. If the value differs between
// processors, returns the best value. Returns 0 if the firmware reports no value.
double firmware_value(hwloc_topology_t topology, hwloc_obj_t memory, hwloc_memattr_id_e attribute,
                      bool higher_is_best) {
  unsigned count = 0;
  if (hwloc_memattr_get_initiators(topology, attribute, memory, 0, &count, nullptr, nullptr) != 0 || count == 0)
    return 0;
  std::vector<hwloc_location> initiators(count);
  std::vector<hwloc_uint64_t> values(count);
  if (hwloc_memattr_get_initiators(topology, attribute, memory, 0, &count, initiators.data(), values.data()) != 0)
    return 0;
  values.resize(std::min<std::size_t>(count, values.size()));
  if (values.empty()) return 0;
  return static_cast<double>(higher_is_best ? *std::max_element(values.begin(), values.end())
                                            : *std::min_element(values.begin(), values.end()));
}

MemoryNode memory_node(hwloc_topology_t topology, hwloc_obj_t memory) {
  const auto either = [&](hwloc_memattr_id_e own, hwloc_memattr_id_e common, bool higher_is_best) {
    const double value = firmware_value(topology, memory, own, higher_is_best);
    return value > 0 ? value : firmware_value(topology, memory, common, higher_is_best);
  };
  MemoryNode node;
  node.os_index = memory->os_index;
  node.bytes = memory->attr->numanode.local_memory;
  const char *driver = hwloc_obj_get_info_by_name(memory, "DAXType");
  node.kind = memory->subtype != nullptr ? memory->subtype : driver != nullptr ? driver : "";
  constexpr double mebibyte = 1 << 20, nanosecond = 1e-9;  // hwloc's units
  node.read_bytes_per_second = mebibyte * either(HWLOC_MEMATTR_ID_READ_BANDWIDTH, HWLOC_MEMATTR_ID_BANDWIDTH, true);
  node.write_bytes_per_second = mebibyte * either(HWLOC_MEMATTR_ID_WRITE_BANDWIDTH, HWLOC_MEMATTR_ID_BANDWIDTH, true);
  node.latency_seconds = nanosecond * either(HWLOC_MEMATTR_ID_READ_LATENCY, HWLOC_MEMATTR_ID_LATENCY, false);
  return node;
}

// Fills the list of a node's processors. The list first has one processor of each core, then a second processor of each
// core, and so on.
void list_processors(NumaNode &node, hwloc_topology_t topology, hwloc_const_bitmap_t cpuset) {
  std::map<unsigned, unsigned> listed;  // for each core, the number of its processors that are already in the list
  std::vector<std::pair<unsigned, unsigned>> ranked;
  hwloc_obj_t processor = nullptr;
  while ((processor = hwloc_get_next_obj_inside_cpuset_by_type(topology, cpuset, HWLOC_OBJ_PU, processor)) != nullptr) {
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, processor);
    const unsigned rank = core == nullptr ? 0 : listed[core->logical_index]++;
    ranked.emplace_back(rank, processor->os_index);
    if (rank == 0) ++node.cores;
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<unsigned, unsigned>::first);
  for (const auto &[rank, os_index] : ranked) node.processors.push_back(os_index);
}

// Returns the memory of all nodes. Memory that is near to few processors comes before memory that is near to many
// processors. If several kinds of memory are near to the same processors, the memory with the lowest number comes
// first. The memory with the lowest number is ordinary memory.
std::vector<hwloc_obj_t> memory_from_near_to_far(hwloc_topology_t topology) {
  std::vector<hwloc_obj_t> memory;
  hwloc_obj_t next = nullptr;
  while ((next = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, next)) != nullptr) memory.push_back(next);
  std::ranges::sort(memory, {},
                    [](hwloc_obj_t one) { return std::pair(hwloc_bitmap_weight(one->cpuset), one->os_index); });
  return memory;
}

std::vector<NumaNode> nodes_of(hwloc_topology_t topology, hwloc_const_bitmap_t allowed) {
  const Bitmap left = copy_of(hwloc_topology_get_topology_cpuset(topology));
  if (hwloc_bitmap_intersects(left.get(), allowed)) hwloc_bitmap_and(left.get(), left.get(), allowed);
  // key: hwloc's number of the node; value: the system's number and the processors of the node
  std::map<unsigned, std::pair<unsigned, Bitmap>> found;
  for (const hwloc_obj_t memory : memory_from_near_to_far(topology)) {
    Bitmap own = copy_of(memory->cpuset);
    hwloc_bitmap_and(own.get(), own.get(), left.get());
    if (hwloc_bitmap_iszero(own.get())) continue;
    hwloc_bitmap_andnot(left.get(), left.get(), own.get());
    found[memory->logical_index] = {memory->os_index, std::move(own)};
  }
  if (found.empty()) found[0] = {0, empty_bitmap()};
  Bitmap &first = found.begin()->second.second;
  hwloc_bitmap_or(first.get(), first.get(), left.get());
  std::vector<NumaNode> nodes;
  for (const auto &[place, node] : found)
    list_processors(nodes.emplace_back(NumaNode{node.first}), topology, node.second.get());
  return nodes;
}

}  // namespace

bool has_hwloc() { return true; }

Topology system_topology() {
  hwloc_topology *topology = this_system();
  if (topology == nullptr) return {{NumaNode{0, 1, {0}}}, false};
  const Bitmap allowed = empty_bitmap();
  if (!is_this_system() || hwloc_get_cpubind(topology, allowed.get(), HWLOC_CPUBIND_THREAD) != 0)
    hwloc_bitmap_fill(allowed.get());
  return {nodes_of(topology, allowed.get()), is_this_system()};
}

Topology synthetic_topology(const std::string &description, const std::string &allowed) {
  const Handle topology = load_or_throw(description);
  const Bitmap set = empty_bitmap();
  if (allowed.empty())
    hwloc_bitmap_fill(set.get());
  else
    hwloc_bitmap_list_sscanf(set.get(), allowed.c_str());
  return {nodes_of(topology.get(), set.get()), false};
}

std::vector<MemoryNode> memory_nodes(const std::string &description) {
  const Handle other = description.empty() ? nullptr : load_or_throw(description);
  hwloc_topology *topology = description.empty() ? this_system() : other.get();
  if (topology == nullptr) return {MemoryNode{}};
  std::vector<MemoryNode> nodes;
  const Bitmap left = copy_of(hwloc_topology_get_topology_cpuset(topology));
  for (const hwloc_obj_t memory : memory_from_near_to_far(topology)) {
    nodes.push_back(memory_node(topology, memory));
    const Bitmap own = copy_of(memory->cpuset);
    hwloc_bitmap_and(own.get(), own.get(), left.get());
    nodes.back().processors = static_cast<unsigned>(hwloc_bitmap_weight(own.get()));
    hwloc_bitmap_andnot(left.get(), left.get(), own.get());
  }
  std::ranges::sort(nodes, {}, &MemoryNode::os_index);
  return nodes;
}

bool is_this_system() { return this_system() != nullptr && hwloc_topology_is_thissystem(this_system()) != 0; }

BoundThread::BoundThread(std::optional<unsigned> processor) {
  hwloc_topology *topology = processor ? this_system() : nullptr;
  if (topology == nullptr) return;
  Bitmap former = empty_bitmap();
  const Bitmap wanted = empty_bitmap();
  hwloc_bitmap_only(wanted.get(), *processor);
  if (hwloc_get_cpubind(topology, former.get(), HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_set_cpubind(topology, wanted.get(), HWLOC_CPUBIND_THREAD) == 0)
    former_ = former.release();
}

BoundThread::~BoundThread() {
  if (former_ == nullptr) return;
  hwloc_set_cpubind(this_system(), former_, HWLOC_CPUBIND_THREAD);
  hwloc_bitmap_free(former_);
}

bool bind_memory(std::byte *data, std::size_t size, const std::vector<unsigned> &nodes) {
  const Bitmap set = empty_bitmap();
  for (const unsigned node : nodes) hwloc_bitmap_set(set.get(), node);
  const hwloc_membind_policy_t policy = nodes.size() == 1 ? HWLOC_MEMBIND_BIND : HWLOC_MEMBIND_INTERLEAVE;
  return this_system() != nullptr &&
         hwloc_set_area_membind(this_system(), data, size, set.get(), policy, HWLOC_MEMBIND_BYNODESET) == 0;
}

}  // namespace outcrop

#else

namespace outcrop {

bool has_hwloc() { return false; }
bool is_this_system() { return true; }
bool bind_memory(std::byte *, std::size_t, const std::vector<unsigned> &) { return false; }
BoundThread::BoundThread(std::optional<unsigned>) {}
BoundThread::~BoundThread() = default;
Topology system_topology() { return {{NumaNode{0, 1, {0}}}, false}; }

Topology synthetic_topology(const std::string &description, const std::string &) {
  throw InputError("topology '", description, "' cannot be used: this version was built without hwloc");
}

std::vector<MemoryNode> memory_nodes(const std::string &description) {
  if (!description.empty()) synthetic_topology(description, "");
  return {MemoryNode{}};
}

}  // namespace outcrop

#endif

namespace outcrop {
namespace {

// Returns the number of threads of each node. Each thread goes to a node with a free core. If no core is free, the
// thread goes to a node with a free processor. If several nodes are possible, the thread goes to the node that has the
// fewest threads per core after this choice.
std::vector<unsigned> threads_of_nodes(const std::vector<NumaNode> &nodes, unsigned threads) {
  std::vector<unsigned> counts(nodes.size(), 0);
  // 0: the node has a free core; 1: all cores of the node are in use, but a core has a free processor; 2: the node has
  // no free processor
  const auto vacancy = [&](std::size_t i) {
    return counts[i] < nodes[i].cores ? 0 : counts[i] < nodes[i].processors.size() ? 1 : 2;
  };
  const auto is_better = [&](std::size_t a, std::size_t b) {
    if (vacancy(a) != vacancy(b)) return vacancy(a) < vacancy(b);
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

}  // namespace

ThreadPlacement unbound(unsigned threads) {
  assert(threads >= 1);
  return ThreadPlacement{std::vector<ThreadPlace>(threads), {threads}, {0}, false};
}

ThreadPlacement spread(const Topology &topology, unsigned threads) {
  assert(threads >= 1 && !topology.nodes.empty());
  const std::vector<unsigned> counts = threads_of_nodes(topology.nodes, threads);
  ThreadPlacement placement{{}, {}, {}, false};
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

ThreadPlacement place_threads(unsigned threads, Bind bind, const std::string &synthetic) {
  if (bind == Bind::none) return unbound(threads);
  if (bind == Bind::cores && !has_hwloc())
    throw InputError("threads cannot be bound: this version was built without hwloc");
  const Topology topology = synthetic.empty() ? system_topology() : synthetic_topology(synthetic);
  if (bind == Bind::cores && !topology.this_system)
    throw InputError("threads cannot be bound to cores of a topology that is not this system's");
  if (bind == Bind::automatic && topology.nodes.size() == 1) return unbound(threads);
  ThreadPlacement placement = spread(topology, threads);
  if (!topology.this_system) return placement;
  placement.bound = std::ranges::all_of(placement.threads,
                                        [](const ThreadPlace &place) { return BoundThread(place.processor).bound(); });
  if (placement.bound) return placement;
  if (bind == Bind::cores) throw InputError("threads cannot be bound: the system refuses");
  return unbound(threads);
}

}  // namespace outcrop
