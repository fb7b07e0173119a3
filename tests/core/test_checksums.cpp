// These tests check the checksums. On every processor, the checksum of a plane must equal the CRC32C that other
// programs compute. The fingerprint of a tile must change if a byte of the tile changes.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

std::vector<std::byte> bytes_of(const std::string &text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Computes the CRC bit by bit, directly from its definition.
std::uint32_t by_definition(std::uint32_t state, const std::byte *data, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    state ^= std::to_integer<std::uint32_t>(data[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78u : 0u);
  }
  return state;
}

TEST(Crc32c, EqualsPublishedVectors) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62A8AB43u);
  std::vector<std::byte> ascending(32);
  for (std::size_t i = 0; i < 32; ++i) ascending[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
}

TEST(Crc32c, EveryVariantFollowsTheDefinition) {
  std::mt19937_64 random(7);
  std::vector<std::byte> data(70000);
  for (std::byte &byte : data) byte = static_cast<std::byte>(random());
  std::vector<std::size_t> lengths;
  for (std::size_t length = 0; length < 1200; ++length) lengths.push_back(length);
  lengths.insert(lengths.end(), {6143, 6144, 6145, 6528, 24576, 24583, 65536, 69999});
  for (const std::size_t length : lengths) {
    const std::size_t begin = length % 65 % (data.size() - length + 1);  // every alignment
    const auto state = static_cast<std::uint32_t>(random());
    const std::uint32_t expected = by_definition(state, data.data() + begin, length);
    for (const Crc32cVariant &variant : crc32c_variants())
      ASSERT_EQ(variant.update(state, data.data() + begin, length), expected) << variant.name << ", length " << length;
  }
}

TEST(Crc32c, ExtendsPieceByPiece) {
  std::vector<std::byte> data(5000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  const std::span<const std::byte> all(data);
  std::uint32_t crc = 0;
  for (std::size_t begin = 0; begin < data.size(); begin += 777)
    crc = crc32c(all.subspan(begin, std::min<std::size_t>(777, data.size() - begin)), crc);
  EXPECT_EQ(crc, crc32c(all));
}

TEST(Crc32c, TheLastVariantIsPortable) {
  ASSERT_FALSE(crc32c_variants().empty());
  EXPECT_STREQ(crc32c_variants().back().name, "table");
}

TEST(Fingerprint, ChangesWithEveryByteAndLength) {
  std::vector<std::byte> bytes(200, std::byte{0});
  const std::uint64_t before = fingerprint(bytes);
  EXPECT_EQ(fingerprint(bytes), before);
  for (std::byte &byte : bytes) {
    byte = std::byte{128};  // this change flips the sign of a number
    EXPECT_NE(fingerprint(bytes), before);
    byte = std::byte{0};
  }
  bytes.push_back(std::byte{0});
  EXPECT_NE(fingerprint(bytes), before);
}

TEST(Fingerprint, ChangesWhenTheSignsOfAllNumbersDo) {
  std::vector<std::byte> bytes(1 << 12, std::byte{0});
  const std::uint64_t before = fingerprint(bytes);
  for (std::size_t i = 7; i < bytes.size(); i += 8) bytes[i] = std::byte{128};
  EXPECT_NE(fingerprint(bytes), before);
}

}  // namespace
}  // namespace outcrop
