// The memory that this process can still allocate: the system kills a process that needs more.
#pragma once

#include <cstdint>
#include <string>

namespace outcrop {

/// Returns the number of bytes that this process can allocate without swapping and within the limits of its control
/// groups. Returns the maximum of the type if the system does not report the number.
std::uint64_t available_bytes();

/// Returns the number of additional bytes that this process can allocate within the limits of all its control groups
/// (version 1 or 2). If no limit is set, returns the maximum of the type. Memory with cached files counts as free,
/// because the system drops these files when a program needs memory. `own` is the file that lists the groups of the
/// process. The folders of these groups are below `root`. src/outcrop/tiers/discover.py computes the same number.
std::uint64_t group_free_bytes(const std::string &own = "/proc/self/cgroup",
                               const std::string &root = "/sys/fs/cgroup");

}  // namespace outcrop
