#include "outcrop/aggregate/text/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <span>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {

// --- figures -------------------------------------------------------------------------------------------------------

namespace {

std::string with_unit(double value, const char *unit) { return format_number(value) + " " + unit; }

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return with_unit(value, units[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds >= 1) return with_unit(seconds, "s");
  return seconds >= 1e-3 ? with_unit(seconds * 1e3, "ms") : with_unit(seconds * 1e6, "us");
}

std::string format_rate(double bytes_per_second) {
  return bytes_per_second >= 1e9 ? with_unit(bytes_per_second / 1e9, "GB/s")
                                 : with_unit(bytes_per_second / 1e6, "MB/s");
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

// --- listings ------------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view tail = "crc32c ";
constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 28;

std::string all_of(const OpenFile &file) {
  const std::uint64_t bytes = file.size();
  if (bytes > max_text_bytes)
    throw CorruptionError(file.path() + " has " + std::to_string(bytes) + " bytes, which no such text has");
  std::string text(bytes, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)).data(), text.size());
  return text;
}

std::uint32_t checksum_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

}  // namespace

std::string with_checksum(const std::string &lines) {
  return lines + std::string(tail) + std::to_string(checksum_of(lines)) + '\n';
}

std::string_view checked_lines(std::string_view text, const std::string &path) {
  const std::size_t last = text.rfind(tail);
  std::uint32_t checksum = 0;
  std::string_view end = last == std::string::npos ? std::string_view() : text.substr(last);
  const bool ended = take(end, tail) && take_number(end, checksum) && end == "\n";
  if (!ended || checksum != checksum_of(text.substr(0, last)))
    throw CorruptionError(path + " is damaged: checksum mismatch");
  return text.substr(0, last);
}

std::string read_text(const std::string &path) { return all_of(*Files::system().open(path, false, false)); }
std::string read_text(Folder &folder, const std::string &name) { return all_of(*folder.open(name, false, false)); }

void write_durably(Folder &folder, const std::string &name, const std::string &text) {
  const std::string beside = name + unfinished;
  folder.remove(beside);  // of a writer that was killed
  folder.create(beside, text.size());
  const std::unique_ptr<OpenFile> file = folder.open(beside, true, false);
  file->write(0, std::as_bytes(std::span(text)).data(), text.size());
  file->flush();
  folder.rename(beside, name);
  folder.flush();
}

}  // namespace outcrop::aggregate
