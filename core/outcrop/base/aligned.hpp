// This header rounds numbers of bytes up or down to an alignment, and allocates memory for planes. The memory comes
// directly from the system. It is aligned to 2 MiB, and has huge pages if possible. The allocation does not touch the
// pages, that is, does not access them. The system places each page in memory near the thread that first touches it.
// The first touch should therefore come from the thread that later uses the page. The size of the memory is rounded up
// to a multiple of 4 KiB. If the size were rounded up to a multiple of 2 MiB, the memory could exceed the budget.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "outcrop/base/error.hpp"

namespace outcrop {

/// Rounds up. Returns the smallest multiple of `unit` that is at least `value`.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

/// Returns the largest multiple of `unit` that is at most `value`.
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }

/// When the owner of the memory is destroyed, unmaps the memory that mmap() has returned.
struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte *data) const { munmap(data, bytes); }
};
using MappedBytes = std::unique_ptr<std::byte, Unmap>;

/// Owns `size` bytes of zeroed pages, aligned to 2 MiB. A page becomes resident when a thread accesses the page for the
/// first time. Throws InputError if the system does not give the memory.
class AlignedMemory {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t huge_bytes = std::size_t{2} << 20;

  AlignedMemory() = default;
  explicit AlignedMemory(std::size_t size) : size_(size) {
    if (size == 0) return;
    const std::size_t mapped = round_up(size, page_bytes), asked = mapped + huge_bytes;
    void *start = asked <= size ? MAP_FAILED  // the sum above has overflowed if `asked <= size`
                                : mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw InputError("cannot take ", size, " bytes of memory: ", std::strerror(ENOMEM));
    // Unmap the pages before the first 2 MiB boundary, and the pages after the end.
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    const std::size_t before = round_up(address, huge_bytes) - address;
    data_ = MappedBytes(static_cast<std::byte *>(start) + before, Unmap{mapped});
    if (before > 0) munmap(start, before);
    if (before < huge_bytes) munmap(data() + mapped, huge_bytes - before);
    madvise(data(), mapped, MADV_HUGEPAGE);  // an error of madvise() is ignored, because small pages also work
  }

  std::byte *data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
  MappedBytes data_;
};

/// Locks the pages of a memory range, so that the system does not swap them out. The lock ends when the pages are
/// unmapped. Throws InputError if the system refuses to lock the pages.
inline void lock_memory(std::byte *data, std::size_t size) {
  if (mlock(data, size) != 0)
    throw InputError("cannot lock ", size, " bytes in memory: ", std::strerror(errno),
                     "; raise the limit that ulimit -l shows");
}

}  // namespace outcrop
