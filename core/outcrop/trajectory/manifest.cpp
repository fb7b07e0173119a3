#include "outcrop/trajectory/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <string_view>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

constexpr std::string_view first_line = "outcrop trajectory 1";
constexpr std::uint64_t max_states = std::uint64_t{1} << 30;
constexpr std::size_t max_places = 256, max_path = 4096, identity_digits = 32, sum_digits = 8;

std::string hex(std::uint32_t number) {
  std::string text(sum_digits + 1, '\0');
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned>(number));
  text.resize(sum_digits);
  return text;
}

std::uint32_t sum_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

std::string with_sum(const std::string &text) { return text + "crc32c " + hex(sum_of(text)) + "\n"; }

// Reads the words of a line. Every function throws a text that says what is wrong.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}

  bool empty() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  std::string_view next() {
    const std::size_t end = rest_.find(' ');
    const std::string_view word = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? "" : rest_.substr(end + 1);
    if (word.empty()) throw "a word is missing";
    return word;
  }

  std::uint64_t number(std::uint64_t most, int base = 10) {
    const std::string_view word = next();
    std::uint64_t found = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), found, base);
    if (error != std::errc{} || end != word.data() + word.size() || found > most) throw "a number is wrong";
    return found;
  }

 private:
  std::string_view rest_;
};

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  bool is_next(std::string_view key) const { return rest_.substr(0, key.size()) == key && rest_[key.size()] == ' '; }

  Words next(std::string_view key) {
    if (!rest_.starts_with(key) || rest_.size() <= key.size() || rest_[key.size()] != ' ') throw "a line is missing";
    const std::size_t end = rest_.find('\n');
    const Words words(rest_.substr(key.size() + 1, end - key.size() - 1));
    rest_ = rest_.substr(end + 1);
    return words;
  }

  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool is_identity(std::string_view text) {
  return text.size() == identity_digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_path(std::string_view text) {
  return !text.empty() && text.size() <= max_path &&
         std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F; });
}

// `text` ends with a newline, and its checksum is right.
TrajectoryManifest read(std::string_view text) {
  Lines lines(text);
  TrajectoryManifest found;
  lines.next("outcrop");
  found.identity = lines.next("identity").rest();
  if (!is_identity(found.identity)) throw "the identity is wrong";
  found.dtype = lines.next("dtype").rest();
  while (lines.is_next("field")) {
    Words words = lines.next("field");
    StateField field{std::string(words.next()), {}};
    while (!words.empty()) field.shape.push_back(words.number(UINT64_MAX));
    found.fields.push_back(std::move(field));
  }
  if (found.fields.empty()) throw "there are no fields";
  found.states = lines.next("states").number(max_states);
  found.memory_states = lines.next("memory").number(found.states);
  std::uint64_t with_files = 0;
  while (lines.is_next("place")) {
    Words words = lines.next("place");
    const std::uint64_t states = words.number(max_states);
    if (!is_path(words.rest()) || found.places.size() == max_places) throw "a path is wrong";
    found.places.push_back({std::string(words.rest()), states});
    with_files += states;
  }
  if (found.places.empty()) throw "there are no places";
  if (with_files != found.states && with_files != found.states - found.memory_states) throw "states have no place";
  while (lines.is_next("state")) {
    Words words = lines.next("state");
    for (std::size_t field = 0; field < found.fields.size(); ++field)
      found.sums.push_back(static_cast<std::uint32_t>(words.number(UINT32_MAX, 16)));
    if (!words.empty()) throw "a state has too many checksums";
  }
  if (!lines.empty()) throw "there are unknown lines";
  if (found.committed() > found.states) throw "there are too many states";
  if (found.committed() > 0 && found.memory_states > 0 && !found.all_have_files()) throw "states have no file";
  return found;
}

}  // namespace

bool TrajectoryManifest::all_have_files() const {
  std::uint64_t with_files = 0;
  for (const Place &place : places) with_files += place.states;
  return with_files >= states;
}

std::string TrajectoryManifest::to_text() const {
  std::string text = std::string(first_line) + "\nidentity " + identity + "\ndtype " + dtype + "\n";
  for (const StateField &field : fields) {
    text.append("field ").append(field.name);
    for (const std::uint64_t size : field.shape) text.append(" ").append(std::to_string(size));
    text += "\n";
  }
  text.append("states ").append(std::to_string(states));
  text.append("\nmemory ").append(std::to_string(memory_states)).append("\n");
  for (const Place &place : places)
    text.append("place ").append(std::to_string(place.states)).append(" ").append(place.path).append("\n");
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (i % fields.size() == 0) text += "state";
    text.append(" ").append(hex(sums[i]));
    if ((i + 1) % fields.size() == 0) text += "\n";
  }
  return with_sum(text);
}

TrajectoryManifest TrajectoryManifest::parse(const std::string &text, const std::string &label) {
  constexpr std::string_view beginning = "outcrop trajectory ";
  if (!text.starts_with(beginning)) throw CorruptionError(label + " is damaged or not written by Outcrop");
  const std::size_t last = text.rfind("crc32c ");
  if (last == std::string::npos || with_sum(text.substr(0, last)) != text)
    throw CorruptionError(label + " is damaged: checksum mismatch");
  if (text.substr(0, text.find('\n')) != first_line)
    throw InputError(label + " is of another format; this version of Outcrop reads \"" + std::string(first_line) +
                     "\"");
  try {
    return read(std::string_view(text).substr(0, last));
  } catch (const char *problem) {
    throw CorruptionError(label + " is damaged: " + problem);
  }
}

std::string member_text(const std::string &identity, std::size_t place) {
  return with_sum("outcrop trajectory member 1\nidentity " + identity + "\nplace " + std::to_string(place) + "\n");
}

}  // namespace outcrop
