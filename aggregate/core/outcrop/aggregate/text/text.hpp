// The functions of this file do three tasks: they write numbers as text for people, read and write listings, and parse
// the tables of machine files. Listings are small files with a checksum.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- numbers -------------------------------------------------------------------------------------------------------

/// Returns a number of bytes as a text with a binary unit, such as "1.5 KiB".
std::string format_bytes(std::uint64_t bytes);
/// Returns a time as a text with four digits and a unit, such as "12.35 ms".
std::string format_seconds(double seconds);
/// Returns a rate as a text with a decimal unit, such as "12.5 GB/s".
std::string format_rate(double bytes_per_second);
/// Returns a number as a text with four significant digits.
std::string format_number(double value);
/// Returns a text such as "1 rank" or "2 ranks".
std::string counted(std::uint64_t count, const std::string &what);

/// Parses a number of bytes such as "64MiB", "64M", "1.5GB" (decimal) or a plain number. If the text is invalid, throws
/// an InputError whose text begins with `name`.
std::uint64_t parse_bytes(const std::string &text, const std::string &name);

// --- listings ------------------------------------------------------------------------------------------------------
// A listing is a small text file. The last line of a listing is the checksum of the other lines. A listing without a
// valid last line is damaged. A damaged listing can remain if a machine stops during a write.

/// The maximum size of a listing.
inline constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 28;

/// While a listing is being written, its name has this suffix.
inline constexpr const char *unfinished = ".tmp";

/// Returns the lines, followed by a line with the checksum of these lines.
std::string with_checksum(const std::string &lines);

/// Returns `text` without its last line, which contains the checksum. `text` is the content of file `path`. Throws
/// CorruptionError if the checksum in the last line is wrong.
std::string_view checked_lines(std::string_view text, const std::string &path);

/// Each of these functions returns the content of a file. The user has named the file, or the file is in a folder. The
/// functions throw StorageError if the file cannot be read, and CorruptionError if the file is longer than the longest
/// listing.
std::string read_text(const std::string &path);
std::string read_text(outcrop::Folder &folder, const std::string &name);

/// Writes the text to a file with a temporary name, makes the file durable, renames the file, and makes the folder
/// durable. Even after a power cut, readers see the complete new file or the previous file. Throws InputError if the
/// text is longer than the longest listing. Throws StorageError. After a StorageError, readers may see the new file or
/// the previous file until the folder is flushed.
void write_durably(outcrop::Folder &folder, const std::string &name, const std::string &text);

// --- parsing -------------------------------------------------------------------------------------------------------

/// Removes `word` from the start of `text`. Returns false if `text` does not begin with `word`.
inline bool take(std::string_view &text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

template <typename Number>
bool take_number(std::string_view &text, Number &number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Removes several parts from the start of `text`, one after the other. A part is a word or a variable. If the next
/// part is a word, `text` must continue with this word. If the next part is a variable, `text` must continue with a
/// number, which this function stores in the variable. Returns false if `text` does not continue with one of the parts.
template <typename... Parts>
bool take_all(std::string_view &text, Parts &&...parts) {
  const auto take_part = [&text](auto &part) {
    if constexpr (std::is_arithmetic_v<std::remove_reference_t<decltype(part)>>)
      return take_number(text, part);
    else
      return take(text, part);
  };
  return (take_part(parts) && ...);
}

/// Moves the first line of `text` to `rest`, without the newline at the end of the line. Returns false if `text` has no
/// newline.
inline bool take_rest(std::string_view &text, std::string &rest) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  rest = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

// --- tables --------------------------------------------------------------------------------------------------------
// Machine files consist of tables in a subset of TOML:
//
//     [name]                     # a comment
//     key = "a text"
//     other = 1.5e-7
//
// The parser is strict: it refuses invalid values, and keys that it does not know. The error message names the file,
// the line and a remedy.

/// One table. Most functions below return the value of a key. All of these functions except has() throw InputError if
/// the value is missing or invalid.
class TextTable {
 public:
  TextTable(std::string file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  const std::string &name() const { return name_; }
  std::vector<std::string> keys() const;

  bool has(const std::string &key);
  std::string text(const std::string &key);  ///< returns a text that is written in quotes
  /// returns a number of bytes, which is written as a text such as "16GiB" or as a number
  std::uint64_t bytes(const std::string &key);
  /// returns a rate, which is written as a text such as "2.4GB/s" or as a number; the rate must be more than 0
  double bytes_per_second(const std::string &key);
  double seconds(const std::string &key);       ///< returns a number of seconds, which may be 0
  std::uint32_t count(const std::string &key);  ///< returns a whole number of at least 1
  void refuse_other_keys() const;

  /// Throws an InputError such as "FILE: name.key = value must be ...".
  [[noreturn]] void refuse(const std::string &key, const std::string &right) const;

 private:
  friend std::vector<TextTable> parse_tables(std::string_view text, const std::string &file);
  struct Value {
    std::string text;
    bool is_quoted = false;
  };
  const Value &value(const std::string &key, const std::string &right);
  double number(const std::string &key, const std::string &right);
  std::uint64_t parsed_bytes(const std::string &key, const std::string &text, const char *right) const;

  std::string file_, name_;
  std::map<std::string, Value> values_;
  std::set<std::string> asked_;
};

/// Returns the tables of a text in the order in which they are in the text. Error messages use `file` as the name of
/// the parsed text.
std::vector<TextTable> parse_tables(std::string_view text, const std::string &file);

}  // namespace outcrop::aggregate
