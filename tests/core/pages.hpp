// Finds the NUMA node of a page of memory.
#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace outcrop {

/// Returns the NUMA node of a resident page, or -1 if Linux does not report the node.
inline int node_of_page(const std::byte *data) {
  int node = -1;
  if (syscall(SYS_get_mempolicy, &node, nullptr, 0, data, MPOL_F_NODE | MPOL_F_ADDR) != 0) return -1;
  return node;
}

}  // namespace outcrop
