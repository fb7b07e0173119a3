#include "outcrop/storage/write_back.hpp"

#include <cassert>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace outcrop {
namespace {

constexpr std::uintptr_t line_bytes = 64;  // or less: smaller lines are written back by several of these at no harm

// The first line, and the end of the last byte.
struct Lines {
  Lines(const std::byte *data, std::size_t length)
      : first(reinterpret_cast<std::uintptr_t>(data) / line_bytes * line_bytes),
        end(reinterpret_cast<std::uintptr_t>(data) + length) {}
  std::uintptr_t first, end;
};

#if defined(__x86_64__)

// Intrinsics take plain pointers; none of them changes what is there.
void *address(std::uintptr_t line) { return reinterpret_cast<void *>(line); }

__attribute__((target("clwb"))) void by_clwb(const std::byte *data, std::size_t length) {
  const Lines lines(data, length);
  for (std::uintptr_t line = lines.first; line < lines.end; line += line_bytes) _mm_clwb(address(line));
}

__attribute__((target("clflushopt"))) void by_clflushopt(const std::byte *data, std::size_t length) {
  const Lines lines(data, length);
  for (std::uintptr_t line = lines.first; line < lines.end; line += line_bytes) _mm_clflushopt(address(line));
}

void by_clflush(const std::byte *data, std::size_t length) {
  const Lines lines(data, length);
  for (std::uintptr_t line = lines.first; line < lines.end; line += line_bytes) _mm_clflush(address(line));
}

std::vector<WriteBackVariant> find_variants() {
  std::vector<WriteBackVariant> found;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    if ((b & bit_CLWB) != 0) found.push_back({"clwb", by_clwb});
    if ((b & bit_CLFLUSHOPT) != 0) found.push_back({"clflushopt", by_clflushopt});
  }
  found.push_back({"clflush", by_clflush});  // part of x86-64
  return found;
}

#elif defined(__aarch64__) && defined(__linux__) && defined(HWCAP_DCPOP)

// Smallest line of any data cache, by the processor's own word.
std::uintptr_t smallest_line_bytes() {
  std::uint64_t type;
  asm("mrs %0, ctr_el0" : "=r"(type));
  return std::uintptr_t{4} << ((type >> 16) & 15);
}

void by_dc_cvap(const std::byte *data, std::size_t length) {
  static const std::uintptr_t bytes = smallest_line_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (std::uintptr_t line = begin / bytes * bytes; line < begin + length; line += bytes)
    asm volatile("sys #3, c7, c12, #1, %0" : : "r"(line) : "memory");  // dc cvap, for assemblers that do not know it
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

void write_back(const std::byte *data, std::size_t length) {
  assert(can_write_back());
  write_back_variants().front().write_back(data, length);
}

void write_back_fence() {
#if defined(__x86_64__)
  _mm_sfence();
#elif defined(__aarch64__)
  asm volatile("dsb sy" : : : "memory");
#endif
}

}  // namespace outcrop
