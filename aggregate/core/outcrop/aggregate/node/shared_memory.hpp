// The functions of this file allocate memory that the ranks of a node share. The file also has functions that return
// how many bytes of each kind of memory are free.
//
// A segment is a file without a name. Each rank of the node maps the file of a segment. The file of a segment is in
// ordinary memory, in memory of chosen NUMA nodes, or in a folder of a file system. One process makes the file. The
// other ranks open the file through the folder /proc/PID/fd of the process that made it. When no process maps the
// segment any more, the system frees the segment, even if a process was killed. If ranks are threads of one process,
// they use the same mapping.
//
// High-bandwidth memory and CXL memory are NUMA nodes. The functions allocate memory of NUMA nodes in four steps:
//
//     compare with the free bytes ─► bind, before any page is touched ─► touch ─► check on which nodes the pages are
//
// The functions compare with the free bytes first, because the system kills a process whose memory is bound to a full
// NUMA node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

/// The kind of memory of a tier on this node.
struct Medium {
  std::string tier = "dram";  ///< the name of the tier
  /// the NUMA nodes to which the memory is bound; if empty, the system chooses
  std::vector<std::uint32_t> numa_nodes = {};
  std::string folder = {};  ///< the folder of the mapped file; if empty, the file is in memory
};

/// Returns a text such as "ordinary memory", "memory of NUMA node 2" or "a file in /local/nvme".
std::string where(const Medium &medium);

class Segment {
 public:
  /// The data with which another rank can find a segment. The address is valid until the process that made the segment
  /// releases the segment.
  struct Address {
    std::int32_t process = 0, descriptor = -1;
    std::uint64_t device = 0, inode = 0, bytes = 0;
  };

  /// Makes a segment that contains zeros. The part of the segment from byte `huge_from` on uses huge pages if the
  /// system supports them. Throws InputError if there is too little memory, or if the medium is not available.
  static std::shared_ptr<Segment> make(std::uint64_t bytes, std::uint64_t huge_from, const Medium &medium = {});
  /// Maps the segment of another rank. If this process cannot access the segment, returns null and stores the reason in
  /// `reason`.
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
  // The start of an address range that is larger than the mapping. The mapping begins at an aligned address inside this
  // address range.
  std::byte *reserved_ = nullptr;
};

// --- NUMA nodes ----------------------------------------------------------------------------------------------------

/// Allocates all pages of `memory` on the NUMA nodes `nodes`. No process may have accessed the pages before. `memory`
/// may be shared or private. Throws InputError in three cases: if the nodes have too few free bytes, if the system
/// refuses, or if the allocated pages are on other nodes.
void allocate_on_nodes(std::span<std::byte> memory, std::span<const std::uint32_t> nodes);

/// Tries to allocate one page on the NUMA nodes `nodes`. Returns "" if the allocation works, and otherwise the reason
/// why not.
std::string why_not_on_nodes(std::span<const std::uint32_t> nodes);

}  // namespace outcrop::aggregate
