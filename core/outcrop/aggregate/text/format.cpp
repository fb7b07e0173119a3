#include "outcrop/aggregate/text/format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdio>

#include "outcrop/base/error.hpp"

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

std::uint64_t parse_bytes(const std::string &text, const std::string &name) {
  const auto wrong = [&] { return InputError(name + " '" + text + "' must be a size such as 64MiB"); };
  double number = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(stopped, text.data() + text.size());
  std::erase_if(unit, [](unsigned char c) { return std::isspace(c) != 0; });
  for (char &c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (error != std::errc()) throw wrong();
  std::size_t power = 0;
  if (!unit.empty() && unit != "b") {
    power = std::string("kmgt").find(unit[0]);
    if (power++ == std::string::npos || (unit.size() > 1 && unit.substr(1) != "b" && unit.substr(1) != "ib"))
      throw wrong();
  }
  const double base = unit.size() == 2 ? 1000 : 1024;
  for (std::size_t i = 0; i < power; ++i) number *= base;
  if (!(number >= 1) || number > 0x1p62) throw wrong();
  return static_cast<std::uint64_t>(number);
}

}  // namespace outcrop::aggregate
