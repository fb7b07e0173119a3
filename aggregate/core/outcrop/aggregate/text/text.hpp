// Text that people read, and small text files that say where bytes are.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "outcrop/storage/folder.hpp"

namespace outcrop::aggregate {

// --- figures -------------------------------------------------------------------------------------------------------

std::string format_bytes(std::uint64_t bytes);                      ///< in the largest binary unit below it: "1.5 KiB"
std::string format_seconds(double seconds);                         ///< four digits and a unit: "12.35 ms"
std::string format_rate(double bytes_per_second);                   ///< decimal: "12.5 GB/s"
std::string format_number(double value);                            ///< four digits
std::string counted(std::uint64_t count, const std::string &what);  ///< "1 rank", "2 ranks"

/// The bytes of "64MiB", "64M", "1.5GB" (decimal) or a plain number. Throws InputError, which begins with `name`.
std::uint64_t parse_bytes(const std::string &text, const std::string &name);

// --- listings ------------------------------------------------------------------------------------------------------
// A listing is a small text file: lines, then a checksum of them. A file without a valid last line was being written when
// the machine stopped, and counts as damaged.

/// The suffix of the name of a listing while it is being written.
inline constexpr const char *unfinished = ".tmp";

/// The lines with their checksum as the last line.
std::string with_checksum(const std::string &lines);

/// The lines in `text`, the content of file `path`. Throws CorruptionError when the checksum does not match.
std::string_view checked_lines(std::string_view text, const std::string &path);

/// The content of a file that the user has named, or of a file in a folder. Throws StorageError, and CorruptionError when it
/// is longer than any listing.
std::string read_text(const std::string &path);
std::string read_text(outcrop::Folder &folder, const std::string &name);

/// Writes the text under a temporary name, makes it durable, renames it, and makes the folder durable. Readers see all of it
/// or what was there before, also after a power cut. Throws StorageError; then the name may stand for either until the folder
/// is flushed.
void write_durably(outcrop::Folder &folder, const std::string &name, const std::string &text);

// --- parsing -------------------------------------------------------------------------------------------------------

/// Takes `word` off the front of `text`. False if it is not there.
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

/// Takes the rest of the line, with its end, off the front. False if the line has no end.
inline bool take_rest(std::string_view &text, std::string &rest) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  rest = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace outcrop::aggregate
