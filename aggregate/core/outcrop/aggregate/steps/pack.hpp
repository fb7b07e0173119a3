// Copying the bytes of a pattern between a rank's memory, places in a buffer that stands for a range of the file, and a
// message in which bytes follow one another.
//
//     memory ──fill──► places        a rank of the same node, writing      (empty: the other way, reading)
//     memory ──pack──► message       a rank of another node, writing       (unpack)
//     message ──lay──► places        its aggregator                        (lift)
//
// `places` stands for the first byte of the range; `memory` has the address of each variable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "outcrop/aggregate/decision/extent.hpp"

namespace outcrop::aggregate {

void fill(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *places);
void empty(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, const std::byte *places);

// These return the number of bytes they moved.
std::uint64_t pack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *message);
std::uint64_t unpack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                     const std::byte *message);
std::uint64_t lay(const Pattern &pattern, const Range &range, const std::byte *message, std::byte *places);
std::uint64_t lift(const Pattern &pattern, const Range &range, const std::byte *places, std::byte *message);

/// Calls move(offset in the file, data, length) for each contiguous run, one extent after the other from number `first` on,
/// in the order of the file within each extent.
template <typename Move>
void move_runs(const Pattern &pattern, std::span<std::byte *const> memory, std::uint64_t base, std::size_t first,
               Move &&move) {
  const std::span<const DeclaredExtent> extents = pattern.extents();
  for (std::size_t number = 0; number < extents.size(); ++number) {
    const DeclaredExtent &declared = extents[(first + number) % extents.size()];
    visit_batches(declared.extent, declared.hull, [&](const Batch &batch) {
      for (std::uint64_t i = 0; i < batch.count; ++i)
        move(base + batch.file + i * batch.file_stride,
             memory[declared.variable] + batch.memory + i * batch.memory_stride, batch.block);
    });
  }
}

}  // namespace outcrop::aggregate
