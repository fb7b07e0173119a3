#include "outcrop/aggregate/text/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {

// --- numbers -------------------------------------------------------------------------------------------------------

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

constexpr std::string_view checksum_word = "crc32c ";

std::string content_of(const OpenFile &file) {
  const std::uint64_t bytes = file.size();
  if (bytes > max_text_bytes)
    throw CorruptionError(file.path() + " has " + std::to_string(bytes) + " bytes, more than such a text may have");
  std::string text(bytes, '\0');
  file.read(0, std::as_writable_bytes(std::span(text)).data(), text.size());
  return text;
}

std::uint32_t checksum_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

}  // namespace

std::string with_checksum(const std::string &lines) {
  return lines + std::string(checksum_word) + std::to_string(checksum_of(lines)) + '\n';
}

std::string_view checked_lines(std::string_view text, const std::string &path) {
  const std::size_t last = text.rfind(checksum_word);
  std::uint32_t checksum = 0;
  std::string_view end = last == std::string::npos ? std::string_view() : text.substr(last);
  const bool ended = take(end, checksum_word) && take_number(end, checksum) && end == "\n";
  if (!ended || checksum != checksum_of(text.substr(0, last)))
    throw CorruptionError(path + " is damaged: checksum mismatch");
  return text.substr(0, last);
}

std::string read_text(const std::string &path) { return content_of(*Files::system().open(path, false, false)); }
std::string read_text(Folder &folder, const std::string &name) { return content_of(*folder.open(name, false, false)); }

void write_durably(Folder &folder, const std::string &name, const std::string &text) {
  if (text.size() > max_text_bytes)
    throw InputError(folder.path() + "/" + name + " would have " + format_bytes(text.size()) +
                     ", but such a file has at most " + format_bytes(max_text_bytes) +
                     "; declare longer contiguous extents, or write fewer steps");
  const std::string temporary = name + unfinished;
  folder.remove(temporary);  // an earlier writer that was killed may have left this file
  folder.create(temporary, text.size());
  const std::unique_ptr<OpenFile> file = folder.open(temporary, true, false);
  file->write(0, std::as_bytes(std::span(text)).data(), text.size());
  file->flush();
  folder.rename(temporary, name);
  folder.flush();
}

// --- tables --------------------------------------------------------------------------------------------------------

namespace {

// Parses one line of a table. `rest_` is the part that is not parsed yet. It never begins with a blank.
class Line {
 public:
  Line(std::string_view rest, std::string place) : rest_(rest), place_(std::move(place)) { take(0); }

  bool is_over() const { return rest_.empty() || rest_.front() == '#'; }

  bool take_sign(char sign) {
    if (!rest_.starts_with(sign)) return false;
    take(1);
    return true;
  }

  std::string name() {
    const auto is_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
    const auto end = std::ranges::find_if_not(rest_, is_name);
    if (end == rest_.begin()) fail("a name of letters, digits and any of _ - . is missing");
    return take(static_cast<std::size_t>(end - rest_.begin()));
  }

  std::string quoted() {
    const std::size_t end = rest_.find_first_of("\"\\");
    if (end == std::string_view::npos || rest_[end] != '"') fail("a text ends with \" and has no \\ in it");
    std::string found(rest_.substr(0, end));
    take(end + 1);
    return found;
  }

  std::string word() {
    std::string found = take(std::min(rest_.find_first_of(" \t#"), rest_.size()));
    if (found.empty()) fail("a value is missing");
    return found;
  }

  void end() const {
    if (!is_over()) fail(std::string("unexpected text: ").append(rest_));
  }

  [[noreturn]] void fail(const std::string &why) const { throw InputError(place_ + ": " + why); }

 private:
  // Removes the first `length` characters of `rest_` and the blanks after these characters. Returns the characters
  // without the blanks.
  std::string take(std::size_t length) {
    std::string taken(rest_.substr(0, length));
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r", length), rest_.size()));
    return taken;
  }

  std::string_view rest_;
  std::string place_;
};

}  // namespace

std::vector<TextTable> parse_tables(std::string_view text, const std::string &file) {
  std::vector<TextTable> tables;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    Line line(text.substr(0, length), file + ":" + std::to_string(number));
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.is_over()) continue;
    const bool is_table = line.take_sign('[');
    const std::string name = line.name();
    if (is_table) {
      if (!line.take_sign(']')) line.fail("] is missing");
      if (std::ranges::find(tables, name, &TextTable::name) != tables.end())
        line.fail("table " + name + " occurs twice");
      tables.emplace_back(file, name);
    } else {
      if (tables.empty()) line.fail("a [table] must be named first");
      if (!line.take_sign('=')) line.fail("= is missing after " + name);
      const bool is_quoted = line.take_sign('"');
      TextTable::Value value{is_quoted ? line.quoted() : line.word(), is_quoted};
      if (!tables.back().values_.emplace(name, std::move(value)).second) line.fail(name + " occurs twice");
    }
    line.end();
  }
  return tables;
}

std::vector<std::string> TextTable::keys() const {
  std::vector<std::string> names;
  for (const auto &[key, value] : values_) names.push_back(key);
  return names;
}

bool TextTable::has(const std::string &key) {
  asked_.insert(key);
  return values_.contains(key);
}

const TextTable::Value &TextTable::value(const std::string &key, const std::string &right) {
  if (!has(key)) throw InputError(file_ + ": " + name_ + "." + key + " is missing; it must be " + right);
  return values_.at(key);
}

void TextTable::refuse(const std::string &key, const std::string &right) const {
  throw InputError(file_ + ": " + name_ + "." + key + " = '" + values_.at(key).text + "' must be " + right);
}

std::string TextTable::text(const std::string &key) {
  const Value &found = value(key, "a text in quotes");
  if (!found.is_quoted || found.text.empty()) refuse(key, "a text in quotes");
  return found.text;
}

double TextTable::number(const std::string &key, const std::string &right) {
  const Value &found = value(key, right);
  std::string_view rest = found.text;
  double number = -1;
  if (found.is_quoted || !take_number(rest, number) || !rest.empty() || !std::isfinite(number)) refuse(key, right);
  return number;
}

std::uint64_t TextTable::parsed_bytes(const std::string &key, const std::string &text, const char *right) const {
  try {
    return parse_bytes(text, key);
  } catch (const InputError &) {
    refuse(key, right);
  }
}

std::uint64_t TextTable::bytes(const std::string &key) {
  constexpr const char *right = "a size such as \"128GiB\"";
  const Value &found = value(key, right);
  if (found.text == "0") return 0;
  return parsed_bytes(key, found.text, right);
}

double TextTable::bytes_per_second(const std::string &key) {
  constexpr const char *right = "a bandwidth such as \"2.4GB/s\", or bytes per second";
  const Value &found = value(key, right);
  if (!found.is_quoted) {
    const double rate = number(key, right);
    if (rate <= 0) refuse(key, right);
    return rate;
  }
  if (!found.text.ends_with("/s")) refuse(key, right);
  return static_cast<double>(parsed_bytes(key, found.text.substr(0, found.text.size() - 2), right));
}

double TextTable::seconds(const std::string &key) {
  const double found = number(key, "a number of seconds of at least 0");
  if (found < 0) refuse(key, "a number of seconds of at least 0");
  return found;
}

std::uint32_t TextTable::count(const std::string &key) {
  const double found = number(key, "a whole number of at least 1");
  if (found < 1 || found > 1e9 || found != std::floor(found)) refuse(key, "a whole number of at least 1");
  return static_cast<std::uint32_t>(found);
}

void TextTable::refuse_other_keys() const {
  std::string known;
  for (const std::string &key : asked_) known.append(known.empty() ? "" : ", ").append(key);
  for (const auto &[key, value] : values_)
    if (!asked_.contains(key)) throw InputError(file_ + ": " + name_ + "." + key + " is unknown; there are " + known);
}

}  // namespace outcrop::aggregate
