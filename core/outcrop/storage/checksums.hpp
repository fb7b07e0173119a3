// Checksums of what is stored: CRC32C of bytes, the seal of a plane, the fingerprint of a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace outcrop {

// --- CRC32C (Castagnoli): the checksum of Zarr shards, and of iSCSI and ext4 ----------------------------------------

/// CRC32C of `bytes`. With `crc`, the checksum of earlier bytes: that of both together.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// The length of a second part, as crc32c_join needs it; takes about a microsecond.
std::uint32_t crc32c_factor(std::uint64_t length_bytes);

/// CRC32C of two parts in a row, from theirs; `second_factor` = crc32c_factor(length of the second).
std::uint32_t crc32c_join(std::uint32_t first, std::uint32_t second, std::uint32_t second_factor);

/// One way to compute it. `update` takes and returns the raw register (the complement of the checksum).
struct Crc32cVariant {
  const char *name;
  std::uint32_t (*update)(std::uint32_t state, const std::byte *data, std::size_t length);
};

/// Those this processor can run, fastest first; the last is the plain one. crc32c() uses the first.
std::span<const Crc32cVariant> crc32c_variants();

// --- The seal of a plane: which plane it is -------------------------------------------------------------------------
//
// The checksum behind a plane shows that its bytes are some that were once written, but not where and when. It does not
// detect planes or arrays that were swapped, or writes that were lost or misplaced. So a seal follows the checksum:
//
//     record:  | plane | CRC32C: 4 bytes | seal: 4 bytes | zeros to a multiple of 4096 |
//     seal  =  CRC32C of | z: 8 bytes | CRC32C of the plane: 4 bytes |, continued from the seed; all little endian
//
// The caller chooses a seed for each run, array and writing.

/// The seal of plane z, whose bytes have the checksum `crc`.
std::uint32_t plane_seal(std::uint64_t z, std::uint32_t crc, std::uint32_t seed);

/// The message about a damaged plane z at `offset` of `path`: its checksum is wrong, or, when it `is_whole`, only its seal.
std::string plane_damage(long z, bool is_whole, const std::string &path, std::uint64_t offset, std::size_t plane_bytes);

// --- The fingerprint of a tile: whether it has changed --------------------------------------------------------------

/// 64 bits that differ when `bytes` have changed. Never stored: another version may compute them differently.
///
/// A commit that skips a tile which did change mixes two states, and no checksum finds that later, since the checksum of
/// the old tile is right. The 32 bits of a CRC are too few: a long run has 10^9 changed tiles, and with probability 1/4
/// one of them would look unchanged.
std::uint64_t fingerprint(std::span<const std::byte> bytes);

}  // namespace outcrop
