// CRC32C (Castagnoli), the checksum that Zarr and the disks of others use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcrop {

/// CRC32C of `bytes`; with `crc`, of what that is the checksum of followed by `bytes`.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// One way to compute it. `update` takes and returns the raw register (the complement of the checksum).
struct Crc32cVariant {
  const char *name;
  std::uint32_t (*update)(std::uint32_t state, const std::byte *data, std::size_t length);
};

/// Those this processor can run, fastest first; the last is the plain one. crc32c() uses the first.
std::span<const Crc32cVariant> crc32c_variants();

}  // namespace outcrop
