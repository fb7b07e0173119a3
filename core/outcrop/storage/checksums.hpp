// Checksums of stored data: the CRC32C of bytes, the seal of a plane, the fingerprint of a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace outcrop {

// --- CRC32C (Castagnoli): the checksum of Zarr shards, and of iSCSI and ext4 ----------------------------------------

/// CRC32C of `bytes`. If `crc` is the checksum of earlier bytes, the result is the checksum of all these bytes.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// The form in which crc32c_join() needs the length of the second part. Takes about a microsecond.
std::uint32_t crc32c_factor(std::uint64_t length_bytes);

/// The CRC32C of two successive parts, given the CRC32C of each. `second_factor` is crc32c_factor(length of the
/// second).
std::uint32_t crc32c_join(std::uint32_t first, std::uint32_t second, std::uint32_t second_factor);

/// One implementation. `update` takes and returns the raw register (the complement of the checksum).
struct Crc32cVariant {
  const char *name;
  std::uint32_t (*update)(std::uint32_t state, const std::byte *data, std::size_t length);
};

/// The implementations that this processor can run, fastest first; the last one is portable. crc32c() uses the first.
std::span<const Crc32cVariant> crc32c_variants();

// --- The seal of a plane: it identifies the plane --------------------------------------------------------------------
//
// The checksum behind a plane shows that its bytes were once written together, but not where and when. It does not
// detect planes or arrays that were swapped, or writes that were lost or misplaced. So a seal follows the checksum:
//
//     record:  | plane | CRC32C: 4 bytes | seal: 4 bytes | zeros to a multiple of 4096 |
//     seal  =  CRC32C of | z: 8 bytes | CRC32C of the plane: 4 bytes |, continued from the seed; all little endian
//
// The caller chooses a seed for each run, array and writing.

/// The seal of plane z, whose bytes have the checksum `crc`.
std::uint32_t plane_seal(std::uint64_t z, std::uint32_t crc, std::uint32_t seed);

/// The message about a damaged plane z at `offset` of `path`. If the plane `is_whole`, only its seal is wrong;
/// otherwise its checksum is wrong.
std::string plane_damage(long z, bool is_whole, const std::string &path, std::uint64_t offset, std::size_t plane_bytes);

// --- The fingerprint of a tile: whether it has changed --------------------------------------------------------------

/// 64 bits that differ after `bytes` have changed. They are never stored, because another version of this program may
/// compute them differently.
///
/// If a commit skips a changed tile, it mixes two states. No checksum detects that later, because the checksum of the
/// old tile is right. The 32 bits of a CRC are too few: a long run has 10^9 changed tiles, and with probability 1/4 one
/// of them would look unchanged.
std::uint64_t fingerprint(std::span<const std::byte> bytes);

}  // namespace outcrop
