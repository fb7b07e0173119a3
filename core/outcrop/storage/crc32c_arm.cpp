// CRC32C on 64-bit ARM: the crc32c instruction in three interleaved streams, joined by a multiplication mod P.
#include "outcrop/storage/crc32c_kernels.hpp"

#if defined(__aarch64__) && defined(__linux__)

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>

#include "outcrop/storage/crc32c_polynomial.hpp"

namespace outcrop::crc {
namespace {

#if defined(__clang__)
#define OUTCROP_CRC __attribute__((target("crc")))
#else
#define OUTCROP_CRC __attribute__((target("+crc")))
#endif

OUTCROP_CRC inline std::uint64_t load64(const std::byte *data) {
  std::uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

OUTCROP_CRC std::uint32_t update_crc(std::uint32_t state, const std::byte *data, std::size_t length) {
  // Streams are long, so that the multiplications (some hundred cycles each) do not count.
  constexpr std::size_t stream = 8192;
  constexpr std::uint32_t by_one = power_of_x(stream * 8), by_two = power_of_x(stream * 16);
  for (; length >= 3 * stream; data += 3 * stream, length -= 3 * stream) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < stream; i += 8) {
      state = __crc32cd(state, load64(data + i));
      second = __crc32cd(second, load64(data + stream + i));
      third = __crc32cd(third, load64(data + 2 * stream + i));
    }
    state = multiply(state, by_two) ^ multiply(second, by_one) ^ third;
  }
  for (; length >= 8; data += 8, length -= 8) state = __crc32cd(state, load64(data));
  for (; length > 0; ++data, --length) state = __crc32cb(state, std::to_integer<std::uint8_t>(*data));
  return state;
}

}  // namespace

std::vector<Crc32cKernel> arm_kernels() { return {{"crc", (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0, update_crc}}; }

}  // namespace outcrop::crc

#else

namespace outcrop::crc {
std::vector<Crc32cKernel> arm_kernels() { return {}; }
}  // namespace outcrop::crc

#endif
