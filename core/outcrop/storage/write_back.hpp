// Cache lines written back to memory, which is what makes them durable where that memory is persistent (see mapping.hpp).
//
// The instruction is chosen at run time, as with checksums. The best, clwb, writes a line back and keeps it; the others drop it.
#pragma once

#include <cstddef>
#include <span>

namespace outcrop {

/// One instruction that does it.
struct WriteBackVariant {
  const char *name;
  void (*write_back)(const std::byte *data, std::size_t length);
};

/// Those this processor has, best first; none on processors that cannot.
std::span<const WriteBackVariant> write_back_variants();

/// Whether there are any.
inline bool can_write_back() { return !write_back_variants().empty(); }

/// Starts to write back every cache line that holds any of these bytes.
void write_back(const std::byte *data, std::size_t length);

/// Returns when all lines whose way back this thread has started are there.
void write_back_fence();

}  // namespace outcrop
