// Tables in a text that people write, as TOML has them, as far as machine files go:
//
//     [name]                     # a comment
//     key = "a text"
//     other = 1.5e-7             or true, or false
//
// Read strictly: what cannot be is refused with file, line and remedy, and so is a key that nobody has asked for.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace outcrop::aggregate {

/// Values by their keys. All functions but has() throw InputError for what is missing or cannot be.
class TextTable {
 public:
  TextTable(std::string file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  const std::string &name() const { return name_; }
  std::vector<std::string> keys() const;

  bool has(const std::string &key);
  std::string text(const std::string &key);         ///< in quotes
  std::uint64_t bytes(const std::string &key);      ///< "16GiB", or a number
  double bytes_per_second(const std::string &key);  ///< "2.4GB/s", or a number; more than 0
  double seconds(const std::string &key);           ///< a number; may be 0
  std::uint32_t count(const std::string &key);      ///< a whole number of at least 1
  bool truth(const std::string &key);               ///< true or false
  void refuse_other_keys() const;

  /// "FILE: name.key = value must be ..."
  [[noreturn]] void refuse(const std::string &key, const std::string &right) const;

 private:
  friend std::vector<TextTable> parse_tables(std::string_view text, const std::string &file);
  struct Value {
    std::string text;
    bool is_quoted = false;
  };
  const Value &value(const std::string &key, const std::string &right);
  double number(const std::string &key, const std::string &right);

  std::string file_, name_;
  std::map<std::string, Value> values_;
  std::set<std::string> asked_;
};

/// The tables of a text, in its order; `file` is its name, for messages.
std::vector<TextTable> parse_tables(std::string_view text, const std::string &file);

}  // namespace outcrop::aggregate
