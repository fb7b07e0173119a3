// Tools for tests of sinks: a file with interleaved blocks of all ranks, and the expected content of this file.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "aggregate_ranks.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

constexpr std::uint64_t turn_bytes = 7000, turns = 6;

/// Returns the declaration of a rank. The blocks of the ranks are interleaved. All ranks together have `size * turns *
/// turn_bytes` bytes, without holes.
inline Declaration in_turns(int rank, int size) {
  const auto ranks = static_cast<std::uint64_t>(size), number = static_cast<std::uint64_t>(rank);
  return {{{strided(number * turn_bytes, turns, turn_bytes, ranks * turn_bytes)}}};
}

inline std::uint64_t bytes_of_step(int size) { return static_cast<std::uint64_t>(size) * turns * turn_bytes; }

inline std::byte value(std::uint64_t step, std::uint64_t offset) {
  const std::uint64_t word = (offset + step * 7919) * 0x9E3779B97F4A7C15;
  return static_cast<std::byte>((word >> 40) | 1);
}

/// Returns the contents of the memory of a rank. `base` is the offset of the step in the file. The function `at` returns
/// the byte for an offset in the file.
inline std::vector<std::byte> part_of(int rank, int size, std::uint64_t base,
                                      const std::function<std::byte(std::uint64_t)> &at) {
  std::vector<std::byte> memory(turns * turn_bytes);
  for (std::uint64_t i = 0; i < memory.size(); ++i) {
    const std::uint64_t turn = i / turn_bytes * static_cast<std::uint64_t>(size) + static_cast<std::uint64_t>(rank);
    memory[i] = at(base + turn * turn_bytes + i % turn_bytes);
  }
  return memory;
}

inline void write_step(File &file, int rank, int size, std::uint64_t step, std::uint64_t base) {
  const auto memory = part_of(rank, size, base, [&](std::uint64_t offset) { return value(step, offset); });
  const std::span<const std::byte> spans[] = {memory};
  file.write(spans, base);
}

inline std::vector<std::byte> read_part(File &file, std::uint64_t base) {
  std::vector<std::byte> memory(turns * turn_bytes);
  const std::span<std::byte> spans[] = {memory};
  file.read(spans, base);
  return memory;
}

inline std::vector<std::byte> whole_file(const std::string &path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  outcrop::File::open(path, false, false).read(0, bytes.data(), bytes.size());
  return bytes;
}

/// Returns options for a plan that has several domains and rounds even for a small file.
inline PlanOptions small_plan(std::uint32_t aggregators = 3) {
  return {.buffer_bytes = 8192, .aggregators = aggregators};
}

/// Runs act() on all ranks. The test fails if one rank throws no error, or another error than the other ranks. Returns
/// the text of this error.
template <typename Error>
std::string told_alike(ThreadRanks &ranks, int size, const std::function<void(int, outcrop_transport &)> &act) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  on_ranks(ranks, size, [&](int rank, outcrop_transport &transport) {
    try {
      act(rank, transport);
    } catch (const Error &error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  for (const std::string &text : texts) EXPECT_EQ(text, texts.front());
  EXPECT_NE(texts.front(), "") << "nothing was thrown";
  return texts.front();
}

inline bool says(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

}  // namespace outcrop::aggregate
