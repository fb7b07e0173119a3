#include "outcrop/aggregate/placement/file_system.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

namespace outcrop::aggregate {
namespace {

// Of file systems across a network, by their numbers: not all systems have the names.
constexpr unsigned long NETWORK[] = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x00C36400,  // Ceph
    0x5346414F,  // AFS
    0x01021997,  // 9P
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x19830326,  // BeeGFS
    0xAAD7AAEA,  // PanFS
    0x20030528,  // OrangeFS
};

unsigned long type_of(std::filesystem::path folder) {
  std::error_code ignored;
  folder = std::filesystem::absolute(folder, ignored);
  while (folder.has_relative_path() && !std::filesystem::exists(folder, ignored)) folder = folder.parent_path();
  struct statfs found {};
  return statfs(folder.c_str(), &found) == 0 ? static_cast<unsigned long>(found.f_type) : 0;
}

}  // namespace

std::string assumed_target(const std::string &folder) {
  const unsigned long type = type_of(folder);
  if (std::ranges::find(NETWORK, type) != std::end(NETWORK))
    return "[target]\nkind = \"pfs\"\nread = 1e11\nwrite = 1e11\nread_latency = 1e-3\nwrite_latency = 1e-3\n"
           "origin = \"assumed for pfs\"\n";
  if (type == TMPFS_MAGIC || type == RAMFS_MAGIC)
    return "[target]\nkind = \"tmpfs\"\nread = 5e9\nwrite = 5e9\nread_latency = 1e-6\nwrite_latency = 1e-6\n"
           "origin = \"assumed for tmpfs\"\n";
  return "[target]\nkind = \"disk\"\nread = 1e9\nwrite = 1e9\nread_latency = 1e-4\nwrite_latency = 1e-4\n"
         "origin = \"assumed for disk\"\n";
}

}  // namespace outcrop::aggregate
