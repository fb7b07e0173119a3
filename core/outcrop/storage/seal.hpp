// The seal of a plane says which plane it is. The checksum behind a plane shows that its bytes are those that were written once, but
// not where and when: planes or arrays that were swapped and writes that were lost or misplaced pass it. So a seal follows it:
//
//     record:  | plane | CRC32C: 4 bytes | seal: 4 bytes | zeros to a multiple of 4096 |
//     seal  =  CRC32C of | z: 8 bytes | CRC32C of the plane: 4 bytes |, continued from the seed; all little endian
//
// The seed stands for run, array and writing; the caller chooses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outcrop {

/// The seal of plane z, whose bytes have the checksum `crc`.
std::uint32_t plane_seal(std::uint64_t z, std::uint32_t crc, std::uint32_t seed);

/// What is wrong with plane z, for messages: its checksum, or only its seal when it `is_whole`. It lies at `offset` of `path`.
std::string plane_damage(long z, bool is_whole, const std::string &path, std::uint64_t offset, std::size_t plane_bytes);

}  // namespace outcrop
