// Copying the bytes of a pattern: between a rank's memory, places in a buffer that stands for a range of the file, and a
// message in which bytes follow one another.
//
//     memory ──fill──► places        a rank of the same node, writing      (empty: the other way, reading)
//     memory ──pack──► message       a rank of another node, writing       (unpack)
//     message ──lay──► places        its aggregator                        (lift)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "outcrop/aggregate/decision/declaration.hpp"

namespace outcrop::aggregate {

/// `places` stands for the range's first byte; `memory` has the address of each variable.
void fill(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *places);
void empty(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, const std::byte *places);

/// These return the bytes they moved.
std::uint64_t pack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *message);
std::uint64_t unpack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                     const std::byte *message);
std::uint64_t lay(const Pattern &pattern, const Range &range, const std::byte *message, std::byte *places);
std::uint64_t lift(const Pattern &pattern, const Range &range, const std::byte *places, std::byte *message);

}  // namespace outcrop::aggregate
