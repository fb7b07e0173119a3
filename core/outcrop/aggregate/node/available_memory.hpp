// How much memory the system could give without taking any from a program, within the limits of this one's control groups.
#pragma once

#include <cstdint>

namespace outcrop::aggregate {

/// Bytes; as many as there can be where the system does not say.
std::uint64_t available_bytes();

}  // namespace outcrop::aggregate
