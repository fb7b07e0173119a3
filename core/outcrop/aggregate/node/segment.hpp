// Memory that the ranks of a node share: a file without a name, which the system takes back when the last of them has gone,
// however it went. It lies in memory, ordinary or of NUMA nodes, or in a folder of a file system, and is mapped.
//
// Others open it through /proc of the process that made it. Ranks that are threads of that process use the same mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outcrop/aggregate/node/medium.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

class Segment {
 public:
  /// What another rank needs to find it; valid while the maker keeps it.
  struct Address {
    std::int32_t process = 0, descriptor = -1;  ///< -1: there is none
    std::uint64_t device = 0, inode = 0, bytes = 0;
  };

  /// Zeroed; huge pages are used from byte `huge_from` on where the system has them. Throws InputError when there is not so
  /// much memory, or the medium cannot be had.
  static std::shared_ptr<Segment> make(std::uint64_t bytes, std::uint64_t huge_from, const Medium &medium = {});
  /// Null when it cannot be reached from here; then `reason` says why.
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

}  // namespace outcrop::aggregate
