#include "outcrop/base/aligned.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"

namespace outcrop {

AlignedMemory::AlignedMemory(std::size_t size_bytes) {
  if (size_bytes == 0) return;
  const std::size_t size = round_up(size_bytes, page_bytes);
  const std::size_t alignment = size < huge_page_bytes ? page_bytes : huge_page_bytes;
  // mmap aligns to pages only: take more, then give back what lies before and behind the aligned part.
  const std::size_t taken = size + alignment - page_bytes;
  void *mapped = mmap(nullptr, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw StorageError("allocate", "memory", 0, size, errno);
  auto *first = static_cast<std::byte *>(mapped);
  const std::size_t before =
      round_up(reinterpret_cast<std::uintptr_t>(first), alignment) - reinterpret_cast<std::uintptr_t>(first);
  const std::size_t behind = taken - before - size;
  if (before > 0) munmap(first, before);
  data_ = first + before;
  size_ = size;
  if (behind > 0) munmap(data_ + size, behind);
  // Only advice: where huge pages are off, the memory still works, about a fifth slower.
  if (alignment == huge_page_bytes) madvise(data_, size, MADV_HUGEPAGE);
}

AlignedMemory::~AlignedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace outcrop
