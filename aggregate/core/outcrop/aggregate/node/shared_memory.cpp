#include "outcrop/aggregate/node/shared_memory.hpp"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/available_memory.hpp"
#include "outcrop/base/error.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace outcrop::aggregate {

// --- segments ------------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t huge = AlignedMemory::huge_bytes;

// All segments that this process has made. The key of a segment is its file descriptor.
std::mutex made_mutex;
std::map<int, std::weak_ptr<Segment>> made;

Descriptor file_in_memory(std::uint64_t bytes) {
  if (const std::uint64_t available = available_bytes(); bytes > available)
    throw InputError("the buffers of this node need " + std::to_string(bytes) + " bytes, but only " +
                     std::to_string(available) + " bytes are available; choose smaller or fewer buffers");
  Descriptor file(memfd_create("outcrop", MFD_CLOEXEC));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw InputError("cannot allocate " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(errno));
  return file;
}

// Makes a file without a name, and allocates all of its blocks. The allocation fails with an error if the file system
// is full. Without the allocation, a later access to a page could end the process with a signal, because the page has
// no block.
Descriptor file_in_folder(std::uint64_t bytes, const std::string &folder) {
  try {
    const outcrop::File file = outcrop::File::unnamed(folder, bytes);
    return Descriptor(fcntl(file.buffered_descriptor(), F_DUPFD_CLOEXEC, 0));
  } catch (const StorageError &error) {
    throw InputError("buffers cannot be placed in " + folder + ": " + error.what() + "; choose another tier");
  }
}

// Returns a text such as "NUMA node 2" or "NUMA nodes 2, 3".
std::string name_of_nodes(std::span<const std::uint32_t> nodes) {
  std::string text = nodes.size() == 1 ? "NUMA node " : "NUMA nodes ";
  for (std::size_t i = 0; i < nodes.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(nodes[i]);
  return text;
}

bool is_file_of(int descriptor, const Segment::Address &address) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && status.st_dev == address.device && status.st_ino == address.inode &&
         static_cast<std::uint64_t>(status.st_size) == address.bytes;
}

}  // namespace

std::string where(const Medium &medium) {
  if (!medium.folder.empty()) return "a file in " + medium.folder;
  return medium.numa_nodes.empty() ? "ordinary memory" : "memory of " + name_of_nodes(medium.numa_nodes);
}

// The mapping begins at a boundary of huge pages. With huge pages, direct transfers are twice as fast, because each
// request to the device has fewer parts.
Segment::Segment(Descriptor file, std::uint64_t bytes) : file_(std::move(file)), bytes_(bytes) {
  void *range = mmap(nullptr, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw InputError("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  reserved_ = static_cast<std::byte *>(range);
  const auto address = reinterpret_cast<std::uintptr_t>(range);
  std::byte *aligned = reserved_ + (round_up(address, huge) - address);
  if (mmap(aligned, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.get(), 0) == MAP_FAILED) {
    const int error = errno;
    munmap(reserved_, bytes + huge);
    throw InputError("cannot map " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(error));
  }
  data_ = aligned;
}

Segment::~Segment() { munmap(reserved_, bytes_ + huge); }

Segment::Address Segment::address() const {
  struct stat status {};
  fstat(file_.get(), &status);
  return {static_cast<std::int32_t>(getpid()), file_.get(), status.st_dev, status.st_ino, bytes_};
}

std::shared_ptr<Segment> Segment::make(std::uint64_t bytes, std::uint64_t huge_from, const Medium &medium) {
  bytes = round_up(bytes, AlignedMemory::page_bytes);
  Descriptor file = medium.folder.empty() ? file_in_memory(bytes) : file_in_folder(bytes, medium.folder);
  std::shared_ptr<Segment> segment(new Segment(std::move(file), bytes));
  if (!medium.numa_nodes.empty()) allocate_on_nodes({segment->data_, bytes}, medium.numa_nodes);
  // Older systems refuse this advice. The code ignores the result of madvise(), because small pages also work.
  const std::uint64_t begin = round_up(huge_from, huge), end = round_down(bytes, huge);
  if (begin < end && medium.folder.empty()) madvise(segment->data_ + begin, end - begin, MADV_COLLAPSE);
  const std::lock_guard lock(made_mutex);
  std::erase_if(made, [](const auto &each) { return each.second.expired(); });
  made[segment->file_.get()] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::attach(const Address &address, std::string &reason) {
  if (address.process == getpid()) {
    const std::lock_guard lock(made_mutex);
    const auto found = made.find(address.descriptor);
    std::shared_ptr<Segment> segment = found == made.end() ? nullptr : found->second.lock();
    if (segment && is_file_of(segment->file_.get(), address)) return segment;
  }
  const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) {
    reason =
        "shared memory of process " + std::to_string(address.process) + " cannot be opened: " + std::strerror(errno);
    return nullptr;
  }
  if (!is_file_of(file.get(), address)) {
    reason = path + " is not the shared memory of the other rank: processes of this node do not see each other";
    return nullptr;
  }
  try {
    return std::shared_ptr<Segment>(new Segment(std::move(file), address.bytes));
  } catch (const InputError &error) {
    reason = error.what();
    return nullptr;
  }
}

// --- NUMA nodes ----------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t page = AlignedMemory::page_bytes;
// the maximum number of pages that check() tests; the tested pages are spread evenly over the memory
constexpr std::size_t max_checked_pages = 4096;
constexpr std::size_t mask_bits = 8 * sizeof(unsigned long);

InputError refused(std::span<const std::uint32_t> nodes, const std::string &reason) {
  return InputError("buffers cannot be placed on " + name_of_nodes(nodes) + ": " + reason + "; choose another tier");
}

// Returns the free bytes of a NUMA node. Pages of the page cache count as free. If the system does not report the free
// bytes, returns a very large number.
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
  // The call passes a length with one additional bit, because the system ignores the last bit.
  if (syscall(SYS_mbind, memory.data(), memory.size(), MPOL_BIND, mask.data(), mask.size() * mask_bits + 1, 0) != 0)
    throw refused(nodes, std::strerror(errno));
}

void touch(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return;
  // EINVAL means that the kernel of the system is too old for this advice.
  if (errno != EINVAL) throw refused(nodes, std::strerror(errno));
  for (std::size_t at = 0; at < memory.size(); at += page)
    *const_cast<volatile std::byte *>(memory.data() + at) = std::byte{0};
}

void check(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  const std::size_t pages = memory.size() / page, step = std::max<std::size_t>(1, pages / max_checked_pages);
  std::vector<void *> addresses;
  for (std::size_t index = 0; index < pages; index += step) addresses.push_back(memory.data() + index * page);
  std::vector<int> node_of_page(addresses.size(), -1);
  if (syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nullptr, node_of_page.data(), 0) != 0)
    throw refused(nodes, std::string("the system does not report the nodes of pages: ") + std::strerror(errno));
  for (const int node : node_of_page) {
    if (node < 0) throw refused(nodes, std::string("a page is not in memory: ") + std::strerror(-node));
    if (std::ranges::find(nodes, static_cast<std::uint32_t>(node)) == nodes.end())
      throw refused(nodes, "the system has placed pages on node " + std::to_string(node));
  }
}

}  // namespace

void allocate_on_nodes(std::span<std::byte> memory, std::span<const std::uint32_t> nodes) {
  std::uint64_t available = 0;
  for (const std::uint32_t node : nodes) available += free_bytes(node);
  if (memory.size() > available)
    throw refused(nodes, "they need " + std::to_string(memory.size()) + " bytes, but only " +
                             std::to_string(available) + " are free");
  bind(memory, nodes);
  touch(memory, nodes);
  check(memory, nodes);
}

std::string why_not_on_nodes(std::span<const std::uint32_t> nodes) {
  void *memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::strerror(errno);
  std::string reason;
  try {
    allocate_on_nodes({static_cast<std::byte *>(memory), page}, nodes);
  } catch (const InputError &error) {
    reason = error.what();
  }
  munmap(memory, page);
  return reason;
}

}  // namespace outcrop::aggregate
