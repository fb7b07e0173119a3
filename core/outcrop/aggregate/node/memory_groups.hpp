// Memory limits of the control groups that this process is in, of version 1 or 2. As src/outcrop/tiers/cgroup.py has them.
#pragma once

#include <cstdint>
#include <string>

namespace outcrop::aggregate {

/// Bytes that the limits of all groups around this process leave to be taken, cached files not counted, for they give way;
/// as many as there can be where nothing limits it. `own` lists its groups, whose folders are under `root`.
std::uint64_t group_free_bytes(const std::string &own = "/proc/self/cgroup",
                               const std::string &root = "/sys/fs/cgroup");

}  // namespace outcrop::aggregate
