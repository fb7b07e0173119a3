// Computes CRC32C in one of three ways. At run time, the features of the processor determine which way is used:
//
//   fold         x86 with AVX-512 and VPCLMULQDQ: 512 bytes are folded onto the next 512 by carry-less products
//   instruction  the CRC instruction of x86 (SSE4.2) or ARMv8; it takes three cycles, so three streams alternate
//   table        all other processors: tables process eight bytes in a step
//
// Polynomials over GF(2) are stored with reversed bits, as the CRC instruction requires: in 32 bits, bit i stands for
// x^(31-i). All constants are computed from the polynomial at compile time.
#include "outcrop/storage/checksums.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "outcrop/base/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace outcrop {
namespace {

constexpr std::uint32_t polynomial = 0x82F63B78;

constexpr std::uint32_t times_x(std::uint32_t value) { return (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0); }

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1, b = times_x(b))
    if ((a & bit) != 0) product ^= b;
  return product;
}

constexpr std::uint32_t power_of_x(std::uint64_t exponent) {
  std::uint32_t result = 0x80000000, square = 0x40000000;  // the polynomials 1 and x
  for (; exponent != 0; exponent >>= 1, square = multiply(square, square))
    if ((exponent & 1) != 0) result = multiply(result, square);
  return result;
}

std::uint64_t load64(const std::byte *data) {
  std::uint64_t value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

// --- table ---------------------------------------------------------------------------------------------------------

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Returns tables. tables[k][b] is the value of the register after byte b and k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (std::size_t k = 0; k < 8; ++k) {
      for (int bit = 0; bit < 8; ++bit) value = times_x(value);
      tables[k][byte] = value;
    }
  }
  return tables;
}

constexpr Tables tables = make_tables();

std::uint32_t update_table(std::uint32_t state, const std::byte *data, std::size_t length) {
  for (; length >= 8; data += 8, length -= 8) {
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      const auto byte = std::to_integer<std::uint32_t>(data[k]) ^ (k < 4 ? (state >> (8 * k)) & 0xFF : 0);
      next ^= tables[7 - k][byte];
    }
    state = next;
  }
  for (; length > 0; ++data, --length)
    state = (state >> 8) ^ tables[0][(state ^ std::to_integer<std::uint32_t>(*data)) & 0xFF];
  return state;
}

// --- instruction ---------------------------------------------------------------------------------------------------

// The code processes three streams of `stream_bytes` bytes at the same time, and then joins their checksums.
constexpr std::size_t stream_bytes = 2048;

using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

// Returns a table that shows how `stream_bytes` zero bytes change the register. If byte k of the old register is b and
// its other bytes are 0, shift[k][b] is the new register.
constexpr Shift make_shift() {
  Shift shift{};
  const std::uint32_t factor = power_of_x(8 * stream_bytes);
  for (std::uint32_t k = 0; k < 4; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte) shift[k][byte] = multiply(byte << (8 * k), factor);
  return shift;
}

[[maybe_unused]] constexpr Shift shift_stream = make_shift();

[[maybe_unused]] std::uint32_t shifted(std::uint32_t state) {
  return shift_stream[0][state & 0xFF] ^ shift_stream[1][(state >> 8) & 0xFF] ^ shift_stream[2][(state >> 16) & 0xFF] ^
         shift_stream[3][state >> 24];
}

// The functions for x86 and ARM have the same body. The macro OUTCROP_UPDATE_BY_INSTRUCTION defines this body, because
// each target needs its own compiled copy.
#define OUTCROP_UPDATE_BY_INSTRUCTION(STEP64, STEP8)                                               \
  for (; length >= 3 * stream_bytes; data += 3 * stream_bytes, length -= 3 * stream_bytes) {       \
    std::uint32_t second = 0, third = 0;                                                           \
    for (std::size_t i = 0; i < stream_bytes; i += 8) {                                            \
      state = STEP64(state, load64(data + i));                                                     \
      second = STEP64(second, load64(data + stream_bytes + i));                                    \
      third = STEP64(third, load64(data + 2 * stream_bytes + i));                                  \
    }                                                                                              \
    state = shifted(shifted(state) ^ second) ^ third;                                              \
  }                                                                                                \
  for (; length >= 8; data += 8, length -= 8) state = STEP64(state, load64(data));                 \
  for (; length > 0; ++data, --length) state = STEP8(state, std::to_integer<std::uint8_t>(*data)); \
  return state

#if defined(__x86_64__)
#define OUTCROP_STEP64(state, word) static_cast<std::uint32_t>(_mm_crc32_u64(state, word))
__attribute__((target("sse4.2,crc32"))) std::uint32_t update_instruction(std::uint32_t state, const std::byte *data,
                                                                         std::size_t length) {
  OUTCROP_UPDATE_BY_INSTRUCTION(OUTCROP_STEP64, _mm_crc32_u8);
}
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) std::uint32_t update_instruction(std::uint32_t state, const std::byte *data,
                                                                 std::size_t length) {
  OUTCROP_UPDATE_BY_INSTRUCTION(__crc32cd, __crc32cb);
}
#endif

// --- fold ----------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)

// fold_first() returns the constant K1, and fold_second() returns the constant K2. The 16 bytes of a lane are the
// polynomial A x^64 + B. If `distance` more bits follow the lane, the lane contributes A K1 + B K2 to the checksum.
// Each of the halves A and B has 64 bits, and bit i of a half is x^(63-i). The code multiplies a half by a 32-bit
// constant, and uses the product as a number of 128 bits. The product of 128 bits is too large by the factor x^33, so
// the constants K1 and K2 contain the factor x^-33.
constexpr std::uint32_t fold_first(std::uint64_t distance) { return power_of_x(distance + 64 - 33); }
constexpr std::uint32_t fold_second(std::uint64_t distance) { return power_of_x(distance - 33); }

#define OUTCROP_FOLD_TARGET __attribute__((target("avx512f,avx512vl,avx512bw,vpclmulqdq,pclmul,sse4.2")))
#define OUTCROP_FOLD_INLINE OUTCROP_FOLD_TARGET inline __attribute__((always_inline))

OUTCROP_FOLD_INLINE __m512i fold(__m512i value, __m512i constants, __m512i next) {
  const __m512i first = _mm512_clmulepi64_epi128(value, constants, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(value, constants, 0x11);
  return _mm512_ternarylogic_epi64(first, second, next, 0x96);  // the exclusive or of all three values
}

template <std::uint64_t distance>
OUTCROP_FOLD_INLINE __m512i fold_constants() {
  constexpr long long first = fold_first(distance), second = fold_second(distance);
  return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}

OUTCROP_FOLD_TARGET std::uint32_t update_fold(std::uint32_t state, const std::byte *data, std::size_t length) {
  constexpr std::size_t lanes = 8, step = lanes * 64;
  if (length < step) return update_instruction(state, data, length);
  __m512i sums[lanes];
  for (std::size_t i = 0; i < lanes; ++i) sums[i] = _mm512_loadu_si512(data + 64 * i);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  const __m512i by_step = fold_constants<8 * step>();
  for (data += step, length -= step; length >= step; data += step, length -= step)
    for (std::size_t i = 0; i < lanes; ++i) sums[i] = fold(sums[i], by_step, _mm512_loadu_si512(data + 64 * i));
  // First, eight registers are folded into one register. While 64 or more bytes are left, this register is folded into
  // the next 64 bytes. At the end, the checksum of the 64 bytes in the register is computed like the checksum of a
  // message.
  const __m512i by_register = fold_constants<512>();
  __m512i sum = sums[0];
  for (std::size_t i = 1; i < lanes; ++i) sum = fold(sum, by_register, sums[i]);
  for (; length >= 64; data += 64, length -= 64) sum = fold(sum, by_register, _mm512_loadu_si512(data));
  std::array<std::byte, 64> rest;
  _mm512_storeu_si512(rest.data(), sum);
  return update_instruction(update_instruction(0, rest.data(), rest.size()), data, length);
}

#endif

// -------------------------------------------------------------------------------------------------------------------

std::vector<Crc32cVariant> find_variants() {
  std::vector<Crc32cVariant> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul"))
      found.push_back({"fold", update_fold});
    found.push_back({"instruction", update_instruction});
  }
#elif defined(__aarch64__) && defined(__linux__)
  if ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0) found.push_back({"instruction", update_instruction});
#endif
  found.push_back({"table", update_table});
  return found;
}

}  // namespace

std::span<const Crc32cVariant> crc32c_variants() {
  static const std::vector<Crc32cVariant> variants = find_variants();
  return variants;
}

std::uint32_t crc32c_factor(std::uint64_t length_bytes) { return power_of_x(8 * length_bytes); }

// Returns the CRC of both parts together. Appending n zero bits to a message multiplies its polynomial by x^n. CRC32C
// inverts all bits before and after each message. The inversions of the two parts cancel each other.
std::uint32_t crc32c_join(std::uint32_t first, std::uint32_t second, std::uint32_t second_factor) {
  return multiply(first, second_factor) ^ second;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  static const auto update = crc32c_variants().front().update;
  return ~update(~crc, bytes.data(), bytes.size());
}

// --- seal of a plane ------------------------------------------------------------------------------------------------

std::uint32_t plane_seal(std::uint64_t z, std::uint32_t crc, std::uint32_t seed) {
  std::array<std::byte, sizeof z + sizeof crc> bytes;
  for (std::size_t i = 0; i < sizeof z; ++i) bytes[i] = static_cast<std::byte>(z >> (8 * i));
  for (std::size_t i = 0; i < sizeof crc; ++i) bytes[sizeof z + i] = static_cast<std::byte>(crc >> (8 * i));
  return crc32c(bytes, seed);
}

std::string plane_damage(long z, bool is_whole, const std::string &path, std::uint64_t offset,
                         std::size_t plane_bytes) {
  const std::string reason = is_whole ? "it is whole, but is not what was last written there: it belongs to another "
                                        "plane, array, generation or run; it is"
                                      : "checksum mismatch";
  return text_from("plane ", z, " is damaged: ", reason, " in ", path, " at offset ", offset, ", ", plane_bytes,
                   " bytes");
}

// --- fingerprint of a tile ------------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15;
// several independent chains are computed at the same time, because each step of a chain waits for the step before it
constexpr std::size_t chains = 8;

// Mixes a word into the state. In the same state, two different words give different results. In two different states,
// the same word gives different results. So a change of a single word always changes the fingerprint.
constexpr std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  const std::uint64_t product = (state ^ word) * golden_ratio;
  return product ^ (product >> 32);
}

}  // namespace

std::uint64_t fingerprint(std::span<const std::byte> bytes) {
  std::array<std::uint64_t, chains> state{}, words;
  for (std::size_t i = 0; i < chains; ++i) state[i] = i;
  std::size_t at = 0;
  for (; at + sizeof words <= bytes.size(); at += sizeof words) {
    std::memcpy(words.data(), bytes.data() + at, sizeof words);
    for (std::size_t i = 0; i < chains; ++i) state[i] = mix(state[i], words[i]);
  }
  words.fill(0);
  if (at < bytes.size()) std::memcpy(words.data(), bytes.data() + at, bytes.size() - at);
  std::uint64_t result = bytes.size();
  for (std::size_t i = 0; i < chains; ++i) result = mix(result, mix(state[i], words[i]));
  return result;
}

}  // namespace outcrop
