// Checksums of stored data: the CRC32C of bytes, the seal of a plane and the fingerprint of a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace outcrop {

// --- CRC32C (Castagnoli): the checksum of Zarr shards, and of iSCSI and ext4 ----------------------------------------

/// Returns the CRC32C of `bytes`. If `crc` is the checksum of earlier bytes, the result is the checksum of the earlier
/// bytes followed by `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// Returns the factor that crc32c_join() needs if the second part has `length_bytes` bytes. This function takes about a
/// microsecond.
std::uint32_t crc32c_factor(std::uint64_t length_bytes);

/// Returns the CRC32C of two successive parts from the CRC32C of each part. `second_factor` is crc32c_factor(length of
/// the second part).
std::uint32_t crc32c_join(std::uint32_t first, std::uint32_t second, std::uint32_t second_factor);

/// One implementation of CRC32C. `update` takes and returns the raw register, which is the bit complement of the
/// checksum.
struct Crc32cVariant {
  const char *name;
  std::uint32_t (*update)(std::uint32_t state, const std::byte *data, std::size_t length);
};

/// Returns the implementations that this processor can run. The first implementation in the list is the fastest, and
/// crc32c() uses this implementation. The last implementation in the list runs on every processor.
std::span<const Crc32cVariant> crc32c_variants();

// --- The seal of a plane: it identifies the plane --------------------------------------------------------------------
//
// The checksum behind a plane shows that the bytes of the plane belong together. The checksum does not show where and
// when the bytes were written. So the checksum does not detect swapped planes, swapped arrays, lost writes or misplaced
// writes. For this reason, a seal follows the checksum:
//
//     record:  | plane | CRC32C: 4 bytes | seal: 4 bytes | zeros to a multiple of 4096 |
//     seal  =  CRC32C of | z: 8 bytes | CRC32C of the plane: 4 bytes |, continued from the seed; all little endian
//
// The caller gives a new seed to each array of each run. If the values of an array are assigned again, the array gets
// another seed.

/// Returns the seal of plane z. `crc` is the checksum of the plane's bytes.
std::uint32_t plane_seal(std::uint64_t z, std::uint32_t crc, std::uint32_t seed);

/// Returns the error message for a damaged plane z at `offset` of `path`. If `is_whole` is true, only the seal of the
/// plane is wrong. If `is_whole` is false, the checksum of the plane is wrong.
std::string plane_damage(long z, bool is_whole, const std::string &path, std::uint64_t offset, std::size_t plane_bytes);

// --- The fingerprint of a tile: it shows whether the tile has changed -----------------------------------------------

/// Returns a number of 64 bits that changes if `bytes` change. The number is never stored on disk, because another
/// version of this program can compute a different number.
///
/// If a commit skipped a changed tile, the commit would mix two states. No checksum would detect the error later,
/// because the checksum of the old tile is right. A CRC has only 32 bits, which are too few to detect all changed
/// tiles. A long run can change a tile 10^9 times. If CRCs were compared, at least one of 10^9 changes would remain
/// undetected with a probability of about 1/5.
std::uint64_t fingerprint(std::span<const std::byte> bytes);

}  // namespace outcrop
