#include "outcrop/aggregate/text/format.hpp"

#include <array>
#include <cstddef>
#include <cstdio>

namespace outcrop::aggregate {
namespace {

std::string four_digits(double value, const char *unit) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.4g %s", value, unit);
  return text.data();
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return four_digits(value, units[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds >= 1) return four_digits(seconds, "s");
  return seconds >= 1e-3 ? four_digits(seconds * 1e3, "ms") : four_digits(seconds * 1e6, "us");
}

std::string format_rate(double bytes_per_second) {
  return bytes_per_second >= 1e9 ? four_digits(bytes_per_second / 1e9, "GB/s")
                                 : four_digits(bytes_per_second / 1e6, "MB/s");
}

std::string counted(std::uint64_t count, const std::string &what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string format_number(double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

}  // namespace outcrop::aggregate
