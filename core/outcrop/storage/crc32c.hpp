// CRC32C (Castagnoli), the checksum of every plane on disk; the same as Zarr's `crc32c` codec, iSCSI and ext4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcrop {

/// Checksum of `bytes`, at close to memory speed where the processor helps.
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// Checksum of what `crc` is the checksum of, followed by `bytes`; crc32c_extend(0, b) == crc32c(b).
std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes);

/// One way to compute it. `update` works on the inverted register and any length and alignment.
struct Crc32cKernel {
  const char *name;
  bool available;
  std::uint32_t (*update)(std::uint32_t state, const std::byte *data, std::size_t length);
};

/// All ways this build has, fastest first; the last one is portable and always available.
std::span<const Crc32cKernel> crc32c_kernels();

}  // namespace outcrop
