// Finds the cores and NUMA nodes that this process may use. The functions of this file also place threads on cores and
// nodes, and bind threads and memory. No other file uses hwloc. Without hwloc, a program treats every system as one
// node, and cannot bind threads and memory.
//
//     node 0                     node 1
//     core  core  core  core     core  core
//     0 8   1 9   2 10  3 11     4 12  5 13
//     memory                     memory
//
// The cores of a node share its memory, and access to other memory takes longer. The list of a node's processors first
// has one processor of each core, then the second processor of each core. In the drawing, the list of node 0 is 0 1 2 3
// 8 9 10 11.
//
// A node consists of memory and of the processors that are nearer to this memory than to other memory. Memory without
// its own processors is not a node in this file. Examples of memory without processors are CXL memory, and HBM beside
// the ordinary memory of a node. Only the function memory_nodes() lists memory without processors. All functions return
// only the nodes and processors that the cgroup, the cpuset and the affinity of the process allow. If the process is
// allowed to use a processor, but not the memory near it, the processor belongs to the first node.
//
// For tests, a topology can be synthetic. A synthetic topology is a text in hwloc's notation, such as "numa:2 core:4
// pu:2", or the content of a file in hwloc's XML format. If the environment variable HWLOC_SYNTHETIC or HWLOC_XMLFILE
// is set, hwloc also reports another machine instead of this system. Threads and memory are never bound to a synthetic
// topology.
//
// Threads are placed on nodes in proportion to the cores of the nodes, with one thread per core if possible:
//
//     6 threads on nodes of 4 and 2 cores:   node 0: 0 1 2 3    node 1: 4 5
//     2 threads on these nodes:              node 0: 0          node 1: 1
//
// On a machine with one node, threads are bound only on request, because a bound thread waits for its core even if
// another core is idle. On a machine with several nodes, threads are bound by default, because accesses to the memory
// of another node cost more time than a wait for a core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct hwloc_bitmap_s;

namespace outcrop {

struct NumaNode {
  unsigned os_index = 0;  ///< the number that the system gives the node
  unsigned cores = 0;
  /// the numbers that the system gives the processors; one processor of each core comes first
  std::vector<unsigned> processors{};
};

struct Topology {
  std::vector<NumaNode> nodes;  ///< the nodes with processors, at least one
  bool this_system = false;     ///< true if threads and memory can be bound to this topology
};

bool has_hwloc();  ///< true if this library was built with hwloc

/// Returns the part of this system that the calling thread may use.
Topology system_topology();

/// Describes the memory of a NUMA node, which may have no processors. Values that the firmware does not report are 0.
struct MemoryNode {
  unsigned os_index = 0;    ///< the number that the system gives the node
  std::uint64_t bytes = 0;  ///< the capacity of the memory
  std::string kind{};       ///< the name from hwloc or the driver: "HBM", "MCDRAM", "DRAM", "NVM", "CXL-DRAM", or ""
  /// number of processors that use this memory as ordinary memory; 0 for CXL memory and additional HBM
  unsigned processors = 0;
  /// bandwidths and latency for the processor with the fastest access
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
  double latency_seconds = 0;
};

/// Returns all memory that the process is allowed to use. The memory is listed in the order of the system's node
/// numbers. If `description` is empty, returns the memory of this system. If not, returns the memory of the system that
/// `description` describes. Without hwloc, the result is one node whose values are all 0. Throws InputError if hwloc
/// does not understand the description.
std::vector<MemoryNode> memory_nodes(const std::string &description = "");

/// Returns true if hwloc reports this system. Returns false if an environment variable makes hwloc report another
/// system.
bool is_this_system();

/// For tests: returns the topology that a text in hwloc's notation describes. `allowed` is a list of processors
/// ("0-3,8"), or empty for all processors. Throws InputError if hwloc does not understand the description.
Topology synthetic_topology(const std::string &description, const std::string &allowed = "");

/// Binds the calling thread to a processor until the destructor runs. Does nothing if no processor is given, or if the
/// system refuses the binding.
class BoundThread {
 public:
  explicit BoundThread(std::optional<unsigned> processor);
  ~BoundThread();
  BoundThread(const BoundThread &) = delete;
  BoundThread &operator=(const BoundThread &) = delete;

  bool bound() const { return former_ != nullptr; }

 private:
  hwloc_bitmap_s *former_ = nullptr;  // the processors to which the thread was bound before
};

/// Sets the NUMA nodes that provide the memory of the `size` bytes at `data`. Pages that are already resident do not
/// move. If `nodes` has several nodes, the pages come from these nodes alternately. Returns false if the system refuses
/// the binding. In containers, the system often refuses the binding.
bool bind_memory(std::byte *data, std::size_t size, const std::vector<unsigned> &nodes);

enum class Bind : unsigned char {
  automatic,  ///< bind only if the system has several nodes
  cores,      ///< always bind
  none        ///< never bind, and treat several nodes as one node
};

/// The node and the processor of a thread. Only the nodes that have threads are numbered, from 0. `processor` is the
/// number that the system gives the processor.
struct ThreadPlace {
  unsigned node = 0, processor = 0;

  bool operator==(const ThreadPlace &) const = default;
};

struct ThreadPlacement {
  /// one place for each thread of the team, ordered by NUMA node
  std::vector<ThreadPlace> threads{ThreadPlace{}};
  std::vector<unsigned> node_threads{1};  ///< number of threads on each node, never 0
  std::vector<unsigned> node_indices{0};  ///< the number that the system gives each node
  bool bound = false;                     ///< true if threads and memory are bound to their nodes

  unsigned size() const { return static_cast<unsigned>(threads.size()); }
  unsigned nodes() const { return static_cast<unsigned>(node_threads.size()); }
  std::optional<unsigned> processor(unsigned member) const {
    return bound ? std::optional(threads[member].processor) : std::nullopt;
  }
};

/// Returns a placement on one node without bound threads: the system chooses the processor of each thread.
ThreadPlacement unbound(unsigned threads);

/// Distributes `threads` threads, at least one, over all nodes of a topology. Does not bind the threads.
ThreadPlacement spread(const Topology &topology, unsigned threads);

/// Places `threads` threads on this system. If `synthetic` is not empty, places them on the topology that `synthetic`
/// describes. Throws InputError if the caller asks for binding, but binding is impossible.
ThreadPlacement place_threads(unsigned threads, Bind bind, const std::string &synthetic = "");

}  // namespace outcrop
