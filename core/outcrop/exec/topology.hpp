// The cores and NUMA nodes that this process may use, the placement of threads on them, and the binding of threads and
// memory. This is the only file that uses hwloc.
//
//     node 0                     node 1             The cores of a node share its memory; access to other memory takes
//     core  core  core  core     core  core         longer. The list of a node's processors has one of each core
//     0 8   1 9   2 10  3 11     4 12  5 13         first, and then the second hardware threads: 0 1 2 3 8 9 10 11
//     memory                     memory
//
// A node is memory together with the processors that are nearer to it than to other memory. Memory without its own
// processors (CXL, or HBM beside the ordinary memory of a node) is not a node. The lists contain only the nodes and
// processors that cgroup, cpuset and affinity allow. If the near memory of a processor is not allowed, the processor
// belongs to the first node.
//
// hwloc is optional when the core is built. Without it a system is one node, and nothing can be bound. memory_nodes()
// lists memory of every kind, with the speed that the firmware reports.
//
// For tests, a topology can be synthetic: "numa:2 core:4 pu:2" in hwloc's notation, or a machine as hwloc's XML. The
// environment variables HWLOC_SYNTHETIC and HWLOC_XMLFILE make hwloc itself report another machine. Nothing is ever
// bound to such a topology.
//
// Threads are placed on nodes and processors:
//
//     6 threads on nodes of 4 and 2 cores:   node 0: 0 1 2 3    node 1: 4 5      in proportion to the cores,
//     2 threads:                             node 0: 0          node 1: 1        each on a core of its own if possible
//
// On one node threads are bound only on request: on a shared machine, a bound thread waits for its core even if another
// core is idle. On several nodes that costs less than access to the memory of the wrong node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct hwloc_bitmap_s;

namespace outcrop {

struct NumaNode {
  unsigned os_index = 0;  ///< the system's number of the node
  unsigned cores = 0;
  std::vector<unsigned> processors{};  ///< the system's numbers; one of each core first
};

struct Topology {
  std::vector<NumaNode> nodes;  ///< the nodes with processors, at least one
  bool this_system = false;     ///< whether threads and memory can be bound to it
};

/// Whether the core was built with hwloc.
bool has_hwloc();

/// The part of this system that the calling thread may use.
Topology system_topology();

/// The memory of a NUMA node, with or without processors. A figure that the firmware does not report is 0.
struct MemoryNode {
  unsigned os_index = 0;    ///< the system's number of the node
  std::uint64_t bytes = 0;  ///< its capacity
  std::string kind{};       ///< its name in hwloc or the driver: "HBM", "MCDRAM", "DRAM", "NVM", "CXL-DRAM", or ""
  unsigned processors = 0;  ///< number of processors whose ordinary memory this is; 0 for CXL and additional HBM
  double read_bytes_per_second = 0, write_bytes_per_second = 0;  ///< for the processor with the best access
  double latency_seconds = 0;
};

/// All memory that may be used on this system, or on the described system, by number. Without hwloc the result is one
/// node without figures. Throws InputError for a description that hwloc does not understand.
std::vector<MemoryNode> memory_nodes(const std::string &description = "");

/// Whether hwloc reports this system. It reports another one if its environment variables say so.
bool is_this_system();

/// A topology in hwloc's notation, for tests. `allowed` is a list of processors ("0-3,8"), empty for all. Throws
/// InputError for a description that hwloc does not understand.
Topology synthetic_topology(const std::string &description, const std::string &allowed = "");

/// Binds the calling thread to a processor until the destructor. Does nothing without a processor, or if the system
/// refuses.
class BoundThread {
 public:
  explicit BoundThread(std::optional<unsigned> processor);
  ~BoundThread();
  BoundThread(const BoundThread &) = delete;
  BoundThread &operator=(const BoundThread &) = delete;

  bool bound() const { return former_ != nullptr; }

 private:
  hwloc_bitmap_s *former_ = nullptr;  // the processors the thread was bound to before
};

/// Sets the nodes for pages that are not resident yet. From several nodes the pages come in turn. From a single node
/// they come while it has free pages, and then from other nodes. Returns false if the system refuses, as containers
/// often do.
bool bind_memory(std::byte *data, std::size_t size, const std::vector<unsigned> &nodes);

enum class Bind : unsigned char {
  automatic,  ///< bind if there are several nodes
  cores,      ///< always bind
  none        ///< never bind, and treat several nodes as one
};

/// The node of a thread, counted among the nodes that have threads, and the system's number of the processor.
struct ThreadPlace {
  unsigned node = 0, processor = 0;

  bool operator==(const ThreadPlace &) const = default;
};

struct ThreadPlacement {
  std::vector<ThreadPlace> threads{ThreadPlace{}};  ///< by member of the team; the threads of a node are neighbours
  std::vector<unsigned> node_threads{1};            ///< number of threads on each node, never 0
  std::vector<unsigned> node_indices{0};            ///< the system's number of each node
  bool bound = false;                               ///< whether threads and memory are bound to their nodes

  unsigned size() const { return static_cast<unsigned>(threads.size()); }
  unsigned nodes() const { return static_cast<unsigned>(node_threads.size()); }
  std::optional<unsigned> processor(unsigned member) const {
    return bound ? std::optional(threads[member].processor) : std::nullopt;
  }
};

/// Threads that the system may run on any processor, as on one node.
ThreadPlacement unbound(unsigned threads);

/// Distributes `threads` >= 1 threads over all nodes of a topology. It does not bind them.
ThreadPlacement spread(const Topology &topology, unsigned threads);

/// Places `threads` threads on this system, or on the `synthetic` topology if that is not empty. Throws InputError if
/// binding is requested and impossible.
ThreadPlacement place_threads(unsigned threads, Bind bind, const std::string &synthetic = "");

}  // namespace outcrop
