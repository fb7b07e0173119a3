// Arithmetic of CRC32C's polynomial at compile time: the constants and tables of every kernel come from here.
//
// Bits are reflected: bit 31 of a 32-bit remainder is the coefficient of x^0, bit 0 that of x^31.
#pragma once

#include <array>
#include <cstdint>

namespace outcrop::crc {

constexpr std::uint32_t polynomial = 0x82F63B78;  // x^32 is left out
constexpr std::uint32_t one = 0x80000000;

/// a·x mod P.
constexpr std::uint32_t times_x(std::uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? polynomial : 0); }

/// a·b mod P.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = one; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

/// x^n mod P.
constexpr std::uint32_t power_of_x(std::uint64_t n) {
  std::uint32_t result = one, square = times_x(one);
  for (; n != 0; n >>= 1) {
    if ((n & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

/// tables[k][b] = remainder of byte b followed by k more bytes.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = times_x(remainder);
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  return tables;
}

}  // namespace outcrop::crc
