// 64 bits that tell whether a tile has changed since they were taken.
//
// A commit that leaves out a tile which did change is a mixture of two states, and no checksum finds it later, since that of
// the old tile is right. The 32 bits of a CRC are too few for that: in a thousand million changed tiles, as a long run has
// them, one looks unchanged with a chance of a quarter. Never stored: another version may compute it otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcrop {

std::uint64_t fingerprint(std::span<const std::byte> bytes);

}  // namespace outcrop
