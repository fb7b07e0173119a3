#include "outcrop/aggregate/node/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "outcrop/aggregate/node/available_memory.hpp"
#include "outcrop/aggregate/node/numa_memory.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace outcrop::aggregate {
namespace {

constexpr std::uint64_t huge = AlignedMemory::huge_bytes;

// Segments made by this process, by descriptor.
std::mutex made_mutex;
std::map<int, std::weak_ptr<Segment>> made;

Descriptor file_in_memory(std::uint64_t bytes) {
  if (const std::uint64_t available = available_bytes(); bytes > available)
    throw InputError("buffers of this node take " + std::to_string(bytes) + " bytes and it has " +
                     std::to_string(available) + " left; choose smaller or fewer ones");
  Descriptor file(memfd_create("outcrop", MFD_CLOEXEC));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw InputError("cannot take " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(errno));
  return file;
}

// Allocated, so that a full file system is told of here, and not by a signal when a page is touched.
Descriptor file_in_folder(std::uint64_t bytes, const std::string &folder) {
  try {
    const outcrop::File file = outcrop::File::unnamed(folder, bytes);
    return Descriptor(fcntl(file.buffered_descriptor(), F_DUPFD_CLOEXEC, 0));
  } catch (const StorageError &error) {
    throw InputError("buffers cannot lie in " + folder + ": " + error.what() + "; choose another tier");
  }
}

bool same(int descriptor, const Segment::Address &address) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && status.st_dev == address.device && status.st_ino == address.inode &&
         static_cast<std::uint64_t>(status.st_size) == address.bytes;
}

}  // namespace

std::string where(const Medium &medium) {
  if (!medium.folder.empty()) return "a file in " + medium.folder;
  return medium.numa_nodes.empty() ? "ordinary memory" : "memory of " + name_of_nodes(medium.numa_nodes);
}

// Aligned to huge pages, in which direct transfers are twice as fast: fewer parts for each request to the device.
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
  if (!medium.numa_nodes.empty()) take_on_nodes({segment->data_, bytes}, medium.numa_nodes);
  // Advice, which only newer systems take; small pages work too.
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
    if (segment && same(segment->file_.get(), address)) return segment;
  }
  const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) {
    reason =
        "shared memory of process " + std::to_string(address.process) + " cannot be opened: " + std::strerror(errno);
    return nullptr;
  }
  if (!same(file.get(), address)) {
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

}  // namespace outcrop::aggregate
