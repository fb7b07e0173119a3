// Small text files that say where bytes are: lines, then a checksum of them. One without a valid last line is none: it was
// being written when the machine stopped.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "outcrop/storage/files.hpp"

namespace outcrop::aggregate {

/// What the name of a listing that is being written has at its end.
inline constexpr const char *unfinished = ".tmp";

/// The lines with their checksum as the last one.
std::string with_checksum(const std::string &lines);

/// The lines in `text`, which is that of file `path`. Throws CorruptionError when it is not whole.
std::string_view checked_lines(std::string_view text, const std::string &path);

/// All of a file that the user has named, or of one in a folder. Throws StorageError, and CorruptionError where it is longer
/// than any listing.
std::string read_text(const std::string &path);
std::string read_text(outcrop::Folder &folder, const std::string &name);

/// The text beside, durable, then renamed, then the folder durable: whoever looks sees all of it or what was there before,
/// after a power cut too. Throws StorageError; then the name may stand for either until the folder is flushed.
void write_durably(outcrop::Folder &folder, const std::string &name, const std::string &text);

/// Takes `word` off the front of `text`; whether it was there.
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

/// Takes what is left of the line, with its end, off the front; whether there was an end.
inline bool take_rest(std::string_view &text, std::string &rest) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  rest = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace outcrop::aggregate
