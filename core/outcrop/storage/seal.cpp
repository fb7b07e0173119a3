#include "outcrop/storage/seal.hpp"

#include <array>

#include "outcrop/storage/crc32c.hpp"

namespace outcrop {

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
  return "plane " + std::to_string(z) + " is damaged: " + reason + " in " + path + " at offset " +
         std::to_string(offset) + ", " + std::to_string(plane_bytes) + " bytes";
}

}  // namespace outcrop
