// Memory that the ranks of a node share, and the free bytes of each kind of memory.
//
// A segment is a file without a name, mapped by each rank. It lies in ordinary memory, in memory of chosen NUMA nodes, or in
// a folder of a file system. The system takes it back when the last process that maps it has ended, for whatever reason.
// Other processes open it through /proc of the process that made it; ranks that are threads use the same mapping.
//
// Memory of NUMA nodes (high-bandwidth memory and memory behind CXL are such nodes) is taken in four steps:
//
//     is there enough free? ─► bind, before anything is touched ─► touch ─► check that the pages lie there
//
// The first question comes first because the system ends a process that is bound to a full node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

/// The memory of a tier on this node.
struct Medium {
  std::string tier = "dram";                   ///< its name
  std::vector<std::uint32_t> numa_nodes = {};  ///< memory is bound to these; empty: where the system puts it
  std::string folder = {};                     ///< a file there is mapped instead; empty: memory
};

/// "ordinary memory", "memory of NUMA node 2", "a file in /local/nvme".
std::string where(const Medium &medium);

class Segment {
 public:
  /// What another rank needs to find a segment. It is valid while the maker keeps the segment.
  struct Address {
    std::int32_t process = 0, descriptor = -1;  ///< -1: there is none
    std::uint64_t device = 0, inode = 0, bytes = 0;
  };

  /// Zeroed. Huge pages are used from byte `huge_from` on where the system has them. Throws InputError when there is too
  /// little memory, or the medium is not available.
  static std::shared_ptr<Segment> make(std::uint64_t bytes, std::uint64_t huge_from, const Medium &medium = {});
  /// Null when the segment cannot be reached from here; then `reason` says why.
  static std::shared_ptr<Segment> attach(const Address &address, std::string &reason);

  ~Segment();
  Segment(const Segment &) = delete;
  Segment &operator=(const Segment &) = delete;

  std::byte *data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  Address address() const;

 private:
  Segment(Descriptor file, std::uint64_t bytes);

  Descriptor file_;
  std::uint64_t bytes_ = 0;
  std::byte *data_ = nullptr;
  std::byte *reserved_ = nullptr;  // address range that the mapping was aligned in
};

// --- NUMA nodes ----------------------------------------------------------------------------------------------------

/// Takes all pages of memory that has not been touched, shared or not, from these nodes. Throws InputError if they have too
/// little, if the system refuses, or if pages lie elsewhere.
void take_on_nodes(std::span<std::byte> memory, std::span<const std::uint32_t> nodes);

/// Why no memory of these nodes can be taken, tried with one page. Empty if it can.
std::string why_not_on_nodes(std::span<const std::uint32_t> nodes);

/// "NUMA node 2", "NUMA nodes 2, 3".
std::string name_of_nodes(std::span<const std::uint32_t> nodes);

// --- how much is available -----------------------------------------------------------------------------------------

/// Bytes that the system could give without taking any from a program, within the limits of this process's control groups.
/// The maximum of the type if the system does not say.
std::uint64_t available_bytes();

/// Bytes that the limits of all control groups (version 1 or 2) of this process leave. Cached files do not count as used,
/// because the system drops them for programs. The maximum of the type if nothing limits it. `own` lists the process's groups, whose
/// folders are under `root`. src/outcrop/tiers/cgroup.py computes the same.
std::uint64_t group_free_bytes(const std::string &own = "/proc/self/cgroup",
                               const std::string &root = "/sys/fs/cgroup");

}  // namespace outcrop::aggregate
