// The runs of a rank one by one, as they lie in the file and in its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "outcrop/aggregate/decision/declaration.hpp"

namespace outcrop::aggregate {

/// Calls move(offset in the file, data, length) for each, in the order of the file within each extent, all of one extent after
/// the other from number `first` on; `memory` has the address of each variable.
template <typename Move>
void move_runs(const Pattern &pattern, std::span<std::byte *const> memory, std::uint64_t base, std::size_t first,
               Move &&move) {
  const auto &entries = pattern.entries();
  for (std::size_t number = 0; number < entries.size(); ++number) {
    const Entry &entry = entries[(first + number) % entries.size()];
    visit_batches(entry.extent, entry.hull, [&](const Batch &batch) {
      for (std::uint64_t i = 0; i < batch.count; ++i)
        move(base + batch.file + i * batch.file_stride, memory[entry.variable] + batch.memory + i * batch.memory_stride,
             batch.block);
    });
  }
}

}  // namespace outcrop::aggregate
