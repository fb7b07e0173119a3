// The memory that this process can still allocate: the system kills a process that needs more.
#pragma once

#include <cstdint>
#include <string>

namespace outcrop {

/// Returns the number of bytes that this process can allocate. The number excludes swap space, and respects the limits
/// of the control groups. If the system does not report the number, returns the maximum of the type.
std::uint64_t available_bytes();

/// Returns the number of further bytes that the control groups (version 1 or 2) of this process allow it to allocate.
/// If no limit is set, returns the maximum of the type. Cached files count as free memory, because the system drops
/// these files when a program needs memory. `own` is the file that lists the groups of the process. The folders of the
/// groups are below `root`. src/outcrop/tiers/discover.py computes the same number.
std::uint64_t group_free_bytes(const std::string &own = "/proc/self/cgroup",
                               const std::string &root = "/sys/fs/cgroup");

}  // namespace outcrop
