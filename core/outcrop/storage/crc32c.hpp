// CRC32C (Castagnoli), the checksum that Zarr and the disks of others use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcrop {

/// CRC32C of `bytes`; with `crc`, of what that is the checksum of followed by `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// What crc32c_join needs to know of the length of its second part; costs about a microsecond.
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

}  // namespace outcrop
