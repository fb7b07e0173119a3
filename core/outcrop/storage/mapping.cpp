#include "outcrop/storage/mapping.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"

namespace outcrop {

namespace {

// The size of a page of the system, which can be larger than AlignedMemory::page_bytes.
std::size_t system_page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Mapping::Mapping(const File &file, bool tries_sync) : path_(file.path()), writable_(file.writable()) {
  const std::size_t size = file.size();
  if (size == 0) return;
  const int protection = PROT_READ | (file.writable() ? PROT_WRITE : 0);
  const auto begin = static_cast<off_t>(file.begin());
  void *start = MAP_FAILED;
#ifdef MAP_SYNC
  if (tries_sync && can_write_back()) {
    start = mmap(nullptr, size, protection, MAP_SHARED_VALIDATE | MAP_SYNC, file.buffered_descriptor(), begin);
    synchronous_ = start != MAP_FAILED;
  }
#endif
  if (start == MAP_FAILED) start = mmap(nullptr, size, protection, MAP_SHARED, file.buffered_descriptor(), begin);
  if (start == MAP_FAILED) throw StorageError("map", path_, 0, size, errno);
  data_ = MappedBytes(static_cast<std::byte *>(start), Unmap{size});
}

Mapping Mapping::reserve(std::size_t size) {
  Mapping mapping;
  if (size == 0) return mapping;
  void *start = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw StorageError("reserve addresses", "memory", 0, size, errno);
  mapping.data_ = MappedBytes(static_cast<std::byte *>(start), Unmap{size});
  return mapping;
}

void Mapping::place(std::size_t at, const File &file, std::uint64_t offset, std::size_t length) {
  const auto begin = static_cast<off_t>(file.begin() + offset);
  if (static_cast<std::size_t>(begin) % system_page_bytes() == 0) {
    if (mmap(data() + at, length, PROT_READ, MAP_SHARED | MAP_FIXED, file.buffered_descriptor(), begin) == MAP_FAILED)
      throw StorageError("map", file.path(), offset, length, errno);
    return;
  }
  // Systems with pages of 64 KiB cannot map the bytes at `offset`, because no page of the file begins there. So the
  // bytes are copied.
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(data() + at, length, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
    throw StorageError("map", "memory", 0, length, errno);
  file.read(offset, data() + at, length);
  mprotect(data() + at, length, PROT_READ);
}

void Mapping::flush(std::size_t begin, std::size_t length) const {
  if (length == 0) return;
  if (synchronous_) {
    write_back_variants().front().write_back(data() + begin, length);
    write_back_fence();
    return;
  }
  const std::size_t into_page = begin % system_page_bytes();
  if (msync(data() + begin - into_page, length + into_page, MS_SYNC) != 0)
    throw StorageError("flush", path_, begin, length, errno);
}

void flush_in_parallel(const Mapping &mapping, std::size_t begin, std::size_t length, unsigned threads) {
  constexpr std::size_t piece = std::size_t{16} << 20;
  in_parallel(round_up(length, piece) / piece, threads, [&](std::uint64_t i) {
    mapping.flush(begin + i * piece, std::min<std::size_t>(piece, length - i * piece));
  });
}

// --- cache lines ----------------------------------------------------------------------------------------------------

namespace {

#if defined(__x86_64__)

constexpr std::uintptr_t line_bytes = 64;  // the size of a cache line on x86-64

// The functions for all instructions have the same body. The macro OUTCROP_WRITE_BACK_BY defines this body, because
// each instruction needs its own compiled copy. The intrinsics take a pointer to non-const memory, but do not change
// the memory.
#define OUTCROP_WRITE_BACK_BY(INSTRUCTION)                                                               \
  const auto begin = reinterpret_cast<std::uintptr_t>(data);                                             \
  for (std::uintptr_t line = begin / line_bytes * line_bytes; line < begin + length; line += line_bytes) \
  INSTRUCTION(reinterpret_cast<void *>(line))

__attribute__((target("clwb"))) void by_clwb(const std::byte *data, std::size_t length) {
  OUTCROP_WRITE_BACK_BY(_mm_clwb);
}

__attribute__((target("clflushopt"))) void by_clflushopt(const std::byte *data, std::size_t length) {
  OUTCROP_WRITE_BACK_BY(_mm_clflushopt);
}

void by_clflush(const std::byte *data, std::size_t length) { OUTCROP_WRITE_BACK_BY(_mm_clflush); }

std::vector<WriteBackVariant> find_variants() {
  std::vector<WriteBackVariant> found;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    if ((b & bit_CLWB) != 0) found.push_back({"clwb", by_clwb});
    if ((b & bit_CLFLUSHOPT) != 0) found.push_back({"clflushopt", by_clflushopt});
  }
  found.push_back({"clflush", by_clflush});  // every x86-64 processor has this instruction
  return found;
}

#elif defined(__aarch64__) && defined(__linux__) && defined(HWCAP_DCPOP)

// Returns the smallest cache line size of all data caches. The size comes from the register CTR_EL0.
std::uintptr_t smallest_line_bytes() {
  std::uint64_t type;
  asm("mrs %0, ctr_el0" : "=r"(type));
  return std::uintptr_t{4} << ((type >> 16) & 15);
}

void by_dc_cvap(const std::byte *data, std::size_t length) {
  static const std::uintptr_t bytes = smallest_line_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t line = begin / bytes * bytes; line < begin + length; line += bytes)
    // this is the instruction dc cvap; old assemblers do not know its name
    asm volatile("sys #3, c7, c12, #1, %0" : : "r"(line) : "memory");
}

std::vector<WriteBackVariant> find_variants() {
  if ((getauxval(AT_HWCAP) & HWCAP_DCPOP) == 0) return {};
  return {{"dc cvap", by_dc_cvap}};
}

#else

std::vector<WriteBackVariant> find_variants() { return {}; }

#endif

}  // namespace

std::span<const WriteBackVariant> write_back_variants() {
  static const std::vector<WriteBackVariant> variants = find_variants();
  return variants;
}

void write_back_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#elif defined(__aarch64__)
  asm volatile("dsb sy" : : : "memory");
#endif
}

}  // namespace outcrop
