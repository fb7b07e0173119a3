#include "outcrop/aggregate/node/numa_memory.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace outcrop::aggregate {
namespace {

constexpr std::size_t page = AlignedMemory::page_bytes;
constexpr std::size_t pages_looked_at = 4096;  // spread over all of the memory
constexpr std::size_t mask_bits = 8 * sizeof(unsigned long);

InputError refused(std::span<const std::uint32_t> nodes, const std::string &reason) {
  return InputError("buffers cannot lie on " + name_of_nodes(nodes) + ": " + reason + "; choose another tier");
}

// What is free there or only caches files; all there can be where the system does not tell.
std::uint64_t free_bytes(std::uint32_t node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/meminfo");
  if (!file) return std::numeric_limits<std::uint64_t>::max() / 4096;
  std::uint64_t kib = 0;
  std::string word, number, name, unit;
  for (std::uint64_t count = 0; file >> word >> number >> name >> count;) {
    if (name == "MemFree:" || name == "Active(file):" || name == "Inactive(file):") kib += count;
    std::getline(file, unit);
  }
  return kib << 10;
}

void bind(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  std::vector<unsigned long> mask(*std::ranges::max_element(nodes) / mask_bits + 1);
  for (const std::uint32_t node : nodes) mask[node / mask_bits] |= 1UL << node % mask_bits;
  // The system counts one bit less than it is told.
  if (syscall(SYS_mbind, memory.data(), memory.size(), MPOL_BIND, mask.data(), mask.size() * mask_bits + 1, 0) != 0)
    throw refused(nodes, std::strerror(errno));
}

void touch(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return;
  if (errno != EINVAL) throw refused(nodes, std::strerror(errno));  // EINVAL: an older system
  for (std::size_t at = 0; at < memory.size(); at += page)
    *const_cast<volatile std::byte *>(memory.data() + at) = std::byte{0};
}

void check(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  const std::size_t pages = memory.size() / page, step = std::max<std::size_t>(1, pages / pages_looked_at);
  std::vector<void *> addresses;
  for (std::size_t index = 0; index < pages; index += step) addresses.push_back(memory.data() + index * page);
  std::vector<int> lies(addresses.size(), -1);
  if (syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nullptr, lies.data(), 0) != 0)
    throw refused(nodes, std::string("where pages lie cannot be seen: ") + std::strerror(errno));
  for (const int node : lies) {
    if (node < 0) throw refused(nodes, std::string("a page is not there: ") + std::strerror(-node));
    if (std::ranges::find(nodes, static_cast<std::uint32_t>(node)) == nodes.end())
      throw refused(nodes, "the system has put pages on node " + std::to_string(node));
  }
}

}  // namespace

void take_on_nodes(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  std::uint64_t available = 0;
  for (const std::uint32_t node : nodes) available += free_bytes(node);
  if (memory.size() > available)
    throw refused(nodes,
                  "they take " + std::to_string(memory.size()) + " bytes, " + std::to_string(available) + " are left");
  bind(memory, nodes);
  touch(memory, nodes);
  check(memory, nodes);
}

std::string why_not_on_nodes(std::span<const std::uint32_t> nodes) {
  void *memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::strerror(errno);
  std::string reason;
  try {
    take_on_nodes({static_cast<std::byte *>(memory), page}, nodes);
  } catch (const InputError &error) {
    reason = error.what();
  }
  munmap(memory, page);
  return reason;
}

std::string name_of_nodes(std::span<const std::uint32_t> nodes) {
  std::string text = nodes.size() == 1 ? "NUMA node " : "NUMA nodes ";
  for (std::size_t i = 0; i < nodes.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(nodes[i]);
  return text;
}

}  // namespace outcrop::aggregate
