// Which cores and NUMA nodes this process may use, which thread runs where, and binding threads and memory. The only file that
// knows hwloc.
//
//     node 0                     node 1               the cores of a node share its memory; other memory takes longer.
//     core  core  core  core     core  core           A node's processors are listed core by core first, and only
//     0 8   1 9   2 10  3 11     4 12  5 13           then the second hardware thread of each: 0 1 2 3 8 9 10 11
//     memory                     memory
//
// A node is memory with processors that are nearer to it than to any other memory. Memory without processors of its own (CXL,
// or HBM beside a node's ordinary memory) is not a node. Only those nodes and processors are listed that cgroup, cpuset and
// affinity allow. Processors whose near memory may not be used belong to the first node.
//
// Without hwloc (it is optional when the core is built) a system is one node, and nothing can be bound. memory_nodes() lists
// memory of every kind, with the speed that the firmware reports.
//
// A topology can also be made up, for tests: "numa:2 core:4 pu:2" in hwloc's notation, or a machine as hwloc's XML. The
// variables HWLOC_SYNTHETIC and HWLOC_XMLFILE make hwloc itself report another machine. Nothing is ever bound to such a
// topology.
//
// Threads are placed on nodes and processors:
//
//     6 threads on nodes of 4 and 2 cores:   node 0: 0 1 2 3    node 1: 4 5      in proportion to the cores,
//     2 threads:                             node 0: 0          node 1: 1        each on a core of its own if possible
//
// On one node threads are bound only on request: on a shared machine a bound thread waits for its core while another core is
// idle. On several nodes that costs less than using memory of the wrong node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

struct hwloc_bitmap_s;

namespace outcrop {

struct NumaNode {
  unsigned os_index = 0;  ///< the system's number of it
  unsigned cores = 0;
  std::vector<unsigned> processors{};  ///< the system's numbers; one of each core before the second of any
};

struct Topology {
  std::vector<NumaNode> nodes;  ///< those with processors, at least one
  bool this_system = false;     ///< whether threads and memory can be bound to it
};

/// Whether the core was built with hwloc.
bool has_hwloc();

/// The part of this system that the calling thread may use.
Topology system_topology();

/// A NUMA node as memory, with or without processors. A figure that the firmware does not report is 0.
struct MemoryNode {
  unsigned os_index = 0;    ///< the system's number of it
  std::uint64_t bytes = 0;  ///< its capacity
  std::string kind{};       ///< its name in hwloc or the driver: "HBM", "MCDRAM", "DRAM", "NVM", "CXL-DRAM", or ""
  unsigned processors = 0;  ///< whose ordinary memory it is; 0 for CXL memory and for HBM beside ordinary memory
  double read_bytes_per_second = 0, write_bytes_per_second = 0;  ///< as seen by the best of the processors
  double latency_seconds = 0;
};

/// All memory of this system that may be used, or of the system described, by number. Without hwloc it is one node of which
/// nothing is known. Throws InputError for a description that hwloc does not understand.
std::vector<MemoryNode> memory_nodes(const std::string &description = "");

/// Whether hwloc reports this system, not another one because of its variables.
bool is_this_system();

/// A topology in hwloc's notation, for tests. `allowed` is a list of processors ("0-3,8"), empty for all. Throws InputError for a description that hwloc does not understand.
Topology synthetic_topology(const std::string &description, const std::string &allowed = "");

/// Binds the calling thread to one of the system's processors while this lives. Does nothing without a processor, or if the
/// system refuses.
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

/// Pages that are not resident yet will come from that node while it has free pages, and then from others. False if the system
/// refuses; containers often forbid it.
bool bind_memory(std::byte *data, std::size_t size, unsigned node);

/// Pages that are not resident yet will come from those nodes in turn. False if the system refuses.
bool interleave_memory(std::byte *data, std::size_t size, const std::vector<unsigned> &nodes);

enum class Bind : unsigned char {
  automatic,  ///< if there are several nodes
  cores,      ///< always
  none        ///< never: several nodes are treated as one
};

/// The node of a thread, counted among the nodes that have threads, and the system's number of its processor.
struct ThreadPlace {
  unsigned node = 0, processor = 0;

  bool operator==(const ThreadPlace &) const = default;
};

struct ThreadPlacement {
  std::vector<ThreadPlace> threads{ThreadPlace{}};  ///< by member of the team; those of a node follow each other
  std::vector<unsigned> node_threads{1};            ///< threads of each node, none of them zero
  std::vector<unsigned> node_indices{0};            ///< the system's number of each
  bool bound = false;                               ///< whether threads and memory are bound to their nodes

  unsigned size() const { return static_cast<unsigned>(threads.size()); }
  unsigned nodes() const { return static_cast<unsigned>(node_threads.size()); }
  std::optional<unsigned> processor(unsigned member) const {
    return bound ? std::optional(threads[member].processor) : std::nullopt;
  }
};

/// Threads that the system may run anywhere, as on one node.
ThreadPlacement unbound(unsigned threads);

/// Distributes `threads` >= 1 threads over all nodes of a topology; they are not bound yet.
ThreadPlacement spread(const Topology &topology, unsigned threads);

/// Places `threads` threads on this system, or on the `synthetic` topology if that is not empty. Throws InputError if binding is
/// requested and impossible.
ThreadPlacement place_threads(unsigned threads, Bind bind, const std::string &synthetic = "");

}  // namespace outcrop
