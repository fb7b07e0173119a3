// CRC32C on x86: carry-less multiplication over 512-bit vectors, and the crc32 instruction in three interleaved streams.
//
// Folding: the message is a polynomial, and moving a block X up by n bits is a multiplication by x^n mod P. So four
// vectors walk over the data side by side, each multiplied by x^2048 and added to the next 256 bytes:
//
//     data   | v0 | v1 | v2 | v3 | v0' | v1' | v2' | v3' | ...
//              └───── · x^2048 ─────►  +
//
// A 128-bit lane is two 64-bit halves; its low half (the earlier bytes) stands 64 bits higher. The carry-less
// product of reflected numbers comes out one bit low, which the constants make up for: x^(n+63) and x^(n-1).
#include "outcrop/storage/crc32c_kernels.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "outcrop/storage/crc32c_polynomial.hpp"

namespace outcrop::crc {
namespace {

constexpr long long half(std::uint64_t power) {
  return static_cast<long long>(static_cast<std::uint64_t>(power_of_x(power)) << 32);
}

#define OUTCROP_SSE42 __attribute__((target("sse4.2,pclmul")))
#define OUTCROP_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,vpclmulqdq,pclmul,sse4.2")))

OUTCROP_SSE42 inline std::uint64_t load64(const std::byte *data) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

OUTCROP_SSE42 std::uint32_t update_serial(std::uint32_t state, const std::byte *data, std::size_t length) {
  std::uint64_t wide = state;
  for (; length >= 8; data += 8, length -= 8) wide = _mm_crc32_u64(wide, load64(data));
  state = static_cast<std::uint32_t>(wide);
  for (; length > 0; ++data, --length) state = _mm_crc32_u8(state, std::to_integer<std::uint8_t>(*data));
  return state;
}

// Moves a state up by the power the constant stands for: crc32 of the product supplies the missing x^33.
OUTCROP_SSE42 inline std::uint64_t shift(std::uint64_t state, std::uint32_t constant) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(state)),
                                               _mm_cvtsi64_si128(static_cast<long long>(constant)), 0);
  return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}

// The instruction takes three cycles and one can start every cycle: three streams keep it busy.
template <std::size_t words>
OUTCROP_SSE42 inline std::uint64_t three_streams(std::uint64_t first, const std::byte *data) {
  constexpr std::size_t bytes = words * 8;
  std::uint64_t second = 0, third = 0;
  for (std::size_t i = 0; i < bytes; i += 8) {
    first = _mm_crc32_u64(first, load64(data + i));
    second = _mm_crc32_u64(second, load64(data + bytes + i));
    third = _mm_crc32_u64(third, load64(data + 2 * bytes + i));
  }
  constexpr std::uint32_t by_one = power_of_x(bytes * 8 - 33), by_two = power_of_x(bytes * 16 - 33);
  return shift(first, by_two) ^ shift(second, by_one) ^ third;
}

OUTCROP_SSE42 std::uint32_t update_sse42(std::uint32_t state, const std::byte *data, std::size_t length) {
  std::uint64_t wide = state;
  for (constexpr std::size_t bytes = 3 * 8 * 256; length >= bytes; data += bytes, length -= bytes)
    wide = three_streams<256>(wide, data);
  for (constexpr std::size_t bytes = 3 * 8 * 16; length >= bytes; data += bytes, length -= bytes)
    wide = three_streams<16>(wide, data);
  return update_serial(static_cast<std::uint32_t>(wide), data, length);
}

// vector · x^n + next, where `powers` holds x^(n+63) and x^(n-1) in every lane.
OUTCROP_AVX512 inline __m512i fold(__m512i vector, __m512i powers, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(vector, powers, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(vector, powers, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // three-way exclusive or
}

template <std::uint64_t bits>
OUTCROP_AVX512 inline __m512i fold_powers() {
  constexpr long long low = half(bits + 63), high = half(bits - 1);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}

OUTCROP_AVX512 inline __m512i load512(const std::byte *data) { return _mm512_loadu_si512(data); }

OUTCROP_AVX512 std::uint32_t update_avx512(std::uint32_t state, const std::byte *data, std::size_t length) {
  constexpr std::size_t block = 256;
  if (length < block) return update_sse42(state, data, length);
  const __m512i start = _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, static_cast<long long>(state));
  __m512i v0 = _mm512_xor_si512(load512(data), start), v1 = load512(data + 64);
  __m512i v2 = load512(data + 128), v3 = load512(data + 192);
  const __m512i by_block = fold_powers<2048>();
  for (data += block, length -= block; length >= block; data += block, length -= block) {
    v0 = fold(v0, by_block, load512(data));
    v1 = fold(v1, by_block, load512(data + 64));
    v2 = fold(v2, by_block, load512(data + 128));
    v3 = fold(v3, by_block, load512(data + 192));
  }
  const __m512i by_vector = fold_powers<512>();
  v3 = fold(fold(fold(v0, by_vector, v1), by_vector, v2), by_vector, v3);
  for (; length >= 64; data += 64, length -= 64) v3 = fold(v3, by_vector, load512(data));
  // What is left in the vector is a message of 64 bytes with the same remainder.
  alignas(64) std::byte remainder[64];
  _mm512_store_si512(remainder, v3);
  return update_serial(update_serial(0, remainder, 64), data, length);
}

}  // namespace

std::vector<Crc32cKernel> x86_kernels() {
  __builtin_cpu_init();
  const bool sse42 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  const bool avx512 = sse42 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq");
  return {{"avx512", avx512, update_avx512}, {"sse42", sse42, update_sse42}};
}

}  // namespace outcrop::crc

#else

namespace outcrop::crc {
std::vector<Crc32cKernel> x86_kernels() { return {}; }
}  // namespace outcrop::crc

#endif
