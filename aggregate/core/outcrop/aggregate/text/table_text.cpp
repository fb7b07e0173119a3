#include "outcrop/aggregate/text/table_text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

// A line being read, from its first character on that is not blank.
class Line {
 public:
  Line(std::string_view rest, std::string place) : rest_(rest), place_(std::move(place)) { skip_blanks(); }

  bool is_over() const { return rest_.empty() || rest_.front() == '#'; }
  bool take_sign(char sign) {
    if (rest_.empty() || rest_.front() != sign) return false;
    rest_.remove_prefix(1);
    skip_blanks();
    return true;
  }

  std::string name() {
    const auto is_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
    const std::string found(rest_.begin(), std::ranges::find_if_not(rest_, is_name));
    if (found.empty()) fail("a name of letters, digits and any of _ - . is missing");
    rest_.remove_prefix(found.size());
    skip_blanks();
    return found;
  }

  std::string quoted() {
    const std::size_t end = rest_.find_first_of("\"\\");
    if (end == std::string_view::npos || rest_[end] != '"') fail("a text ends with \" and has no \\ in it");
    std::string found(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    skip_blanks();
    return found;
  }

  std::string word() {
    std::string found(rest_.substr(0, std::min(rest_.find_first_of(" \t#"), rest_.size())));
    if (found.empty()) fail("a value is missing");
    rest_.remove_prefix(found.size());
    skip_blanks();
    return found;
  }

  void end() const {
    if (!is_over()) fail(std::string("too much: ").append(rest_));
  }

  [[noreturn]] void fail(const std::string &why) const { throw InputError(place_ + ": " + why); }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
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
        line.fail("table " + name + " is there twice");
      tables.emplace_back(file, name);
    } else {
      if (tables.empty()) line.fail("a [table] must be named first");
      if (!line.take_sign('=')) line.fail("= is missing after " + name);
      const bool is_quoted = line.take_sign('"');
      TextTable::Value value{is_quoted ? line.quoted() : line.word(), is_quoted};
      if (!tables.back().values_.emplace(name, std::move(value)).second) line.fail(name + " is there twice");
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

std::uint64_t TextTable::bytes(const std::string &key) {
  constexpr const char *right = "a size such as \"128GiB\"";
  const Value &found = value(key, right);
  if (found.text == "0") return 0;
  try {
    return parse_bytes(found.text, key);
  } catch (const InputError &) {
    refuse(key, right);
  }
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
  try {
    return static_cast<double>(parse_bytes(found.text.substr(0, found.text.size() - 2), key));
  } catch (const InputError &) {
    refuse(key, right);
  }
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

bool TextTable::truth(const std::string &key) {
  const Value &found = value(key, "true or false");
  if (found.is_quoted || (found.text != "true" && found.text != "false")) refuse(key, "true or false");
  return found.text == "true";
}

void TextTable::refuse_other_keys() const {
  std::string known;
  for (const std::string &key : asked_) known.append(known.empty() ? "" : ", ").append(key);
  for (const auto &[key, value] : values_)
    if (!asked_.contains(key)) throw InputError(file_ + ": " + name_ + "." + key + " is unknown; there are " + known);
}

}  // namespace outcrop::aggregate
