#include "outcrop/storage/fingerprint.hpp"

#include <array>
#include <cstring>

namespace outcrop {
namespace {

constexpr std::uint64_t odd = 0x9E3779B97F4A7C15;  // the golden ratio
constexpr std::size_t lanes = 8;                   // words at once: each lane's steps wait for each other

// One to one in both arguments, so that a single changed word always shows.
constexpr std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  const std::uint64_t product = (state ^ word) * odd;
  return product ^ (product >> 32);
}

}  // namespace

std::uint64_t fingerprint(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, lanes> state{}, words;
  for (std::size_t lane = 0; lane < lanes; ++lane) state[lane] = lane;
  std::size_t at = 0;
  for (; at + sizeof words <= bytes.size(); at += sizeof words) {
    std::memcpy(words.data(), bytes.data() + at, sizeof words);
    for (std::size_t lane = 0; lane < lanes; ++lane) state[lane] = mix(state[lane], words[lane]);
  }
  words.fill(0);
  if (at < bytes.size()) std::memcpy(words.data(), bytes.data() + at, bytes.size() - at);
  std::uint64_t result = bytes.size();
  for (std::size_t lane = 0; lane < lanes; ++lane) result = mix(result, mix(state[lane], words[lane]));
  return result;
}

}  // namespace outcrop
