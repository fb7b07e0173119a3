// Figures as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace outcrop::aggregate {

std::string format_bytes(std::uint64_t bytes);                      ///< in the largest binary unit below it: "1.5 KiB"
std::string format_seconds(double seconds);                         ///< four digits and a unit: "12.35 ms"
std::string format_rate(double bytes_per_second);                   ///< decimal: "12.5 GB/s"
std::string format_number(double value);                            ///< four digits
std::string counted(std::uint64_t count, const std::string &what);  ///< "1 rank", "2 ranks"

/// The bytes of "64MiB", "64M", "1.5GB" (decimal) or a plain number. Throws InputError, which begins with `name`.
std::uint64_t parse_bytes(const std::string &text, const std::string &name);

}  // namespace outcrop::aggregate
