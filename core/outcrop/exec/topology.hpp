// Which cores and NUMA nodes this process may use, and binding threads and memory to them. The only file that knows hwloc.
//
//     node 0                     node 1               cores of one node share its memory; another node's takes longer.
//     core  core  core  core     core  core           A node's processors are listed core by core first, and only
//     0 8   1 9   2 10  3 11     4 12  5 13           then the second hardware thread of each: 0 1 2 3 8 9 10 11
//     memory                     memory
//
// What counts as a node: memory with processors that are nearer to it than to any other. Memory without processors of its
// own (CXL, or HBM beside a node's ordinary memory) is none. What cgroup, cpuset and affinity leave of the machine is all
// that is listed. Processors none of whose near memory may be used join the first node.
//
// Without hwloc (it is optional when the core is built) a system is one node, and nothing can be bound.
// Memory of every kind is listed apart from that (memory_nodes), with what the firmware says of its speed.
//
// A topology can also be made up, for tests: "numa:2 core:4 pu:2" in hwloc's notation, or a machine as hwloc's XML. The variables HWLOC_SYNTHETIC and
// HWLOC_XMLFILE make hwloc itself take another machine for this one. Such a topology is never bound to.
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
  bool is_this_system = false;  ///< whether threads and memory can be bound to it
};

/// Whether the core was built with hwloc.
bool has_hwloc();

/// What the calling thread may use of this system.
Topology system_topology();

/// A NUMA node as memory, whether it has processors or not. What the firmware says is 0 where it says nothing.
struct MemoryNode {
  unsigned os_index = 0;    ///< the system's number of it
  std::uint64_t bytes = 0;  ///< what it holds
  std::string kind{};       ///< what hwloc or the driver calls it: "HBM", "MCDRAM", "DRAM", "NVM", "CXL-DRAM", or ""
  unsigned processors = 0;  ///< to which it is the ordinary memory; of none: HBM beside it, CXL memory
  double read_bytes_per_second = 0, write_bytes_per_second = 0;  ///< by the best of the processors
  double latency_seconds = 0;
};

/// All memory of this system that may be used, or with a description that of another one, by number. Without hwloc it is one
/// node of which nothing is known. Throws InputError for a description that hwloc does not understand.
std::vector<MemoryNode> memory_nodes(const std::string &description = "");

/// Whether the topology is that of this system, not of another one by hwloc's variables.
bool is_this_system();

/// A topology of hwloc's notation for tests; `allowed` is the list of processors ("0-3,8") to which it is restricted, empty for
/// all. Throws InputError for a description that hwloc does not understand.
Topology synthetic_topology(const std::string &description, const std::string &allowed = "");

/// Binds the calling thread to one of the system's processors while this lives; does nothing without a processor, or where
/// the system refuses.
class BoundThread {
 public:
  explicit BoundThread(std::optional<unsigned> processor);
  ~BoundThread();
  BoundThread(const BoundThread &) = delete;
  BoundThread &operator=(const BoundThread &) = delete;

  bool is_bound() const { return former_ != nullptr; }

 private:
  hwloc_bitmap_s *former_ = nullptr;  // to where the thread was bound before
};

/// Lets pages that are not resident yet come from that node as long as it has any free, and from others then. False where
/// the system refuses: containers often forbid it.
bool bind_memory(std::byte *data, std::size_t size, unsigned node);

/// Lets pages that are not resident yet come from those nodes in turn. False where the system refuses.
bool interleave_memory(std::byte *data, std::size_t size, const std::vector<unsigned> &nodes);

}  // namespace outcrop
