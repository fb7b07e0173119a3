#include "outcrop/aggregate/stage_list.hpp"

#include <array>
#include <charconv>
#include <span>
#include <sstream>
#include <string_view>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::string_view head = "outcrop stage 1", tail = "crc32c ";
constexpr std::array<std::string_view, 3> endings{".data", ".list", ".done"};  // in the order of StageFile

std::uint32_t checksum_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

// Takes `word` off the front of `text`; whether it was there.
bool take(std::string_view &text, std::string_view word) {
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

bool take_run(std::string_view &text, StagedRun &run) {
  return take(text, "run ") && take_number(text, run.target) && take(text, " ") && take_number(text, run.length) &&
         take(text, " ") && take_number(text, run.data) && take(text, " ") && take_number(text, run.checksum) &&
         take(text, "\n");
}

bool take_list(std::string_view text, StageList &list) {
  if (!take(text, head) || !take(text, "\ntarget ")) return false;
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  list.target = text.substr(0, end);
  text.remove_prefix(end);
  if (!take(text, "\nstep ") || !take_number(text, list.step)) return false;
  if (!take(text, "\nwriter ") || !take_number(text, list.writer) || !take(text, "\n")) return false;
  for (StagedRun run; !text.empty(); list.runs.push_back(run))
    if (!take_run(text, run)) return false;
  return true;
}

}  // namespace

std::string to_text(const StageList &list) {
  std::ostringstream text;
  text << head << "\ntarget " << list.target << "\nstep " << list.step << "\nwriter " << list.writer << '\n';
  for (const StagedRun &run : list.runs)
    text << "run " << run.target << ' ' << run.length << ' ' << run.data << ' ' << run.checksum << '\n';
  const std::string content = text.str();
  return content + std::string(tail) + std::to_string(checksum_of(content)) + '\n';
}

StageList stage_list_of(const std::string &text, const std::string &path) {
  const std::size_t last = text.rfind(tail);
  StageList list;
  std::uint32_t checksum = 0;
  std::string_view end = last == std::string::npos ? std::string_view() : std::string_view(text).substr(last);
  const bool is_ended = take(end, tail) && take_number(end, checksum) && end == "\n";
  if (!is_ended || checksum != checksum_of(std::string_view(text).substr(0, last)))
    throw CorruptionError(path + " is damaged: checksum mismatch");
  if (!take_list(std::string_view(text).substr(0, last), list))
    throw CorruptionError(path + " is not a list of staged bytes that this version reads");
  return list;
}

std::string StageName::text() const {
  return "step-" + std::to_string(step) + ".writer-" + std::to_string(writer) +
         std::string(endings[static_cast<std::size_t>(kind)]);
}

std::optional<StageName> StageName::of(const std::string &text) {
  std::string_view rest = text;
  StageName name;
  if (!take(rest, "step-") || !take_number(rest, name.step) || !take(rest, ".writer-") ||
      !take_number(rest, name.writer))
    return std::nullopt;
  for (const StageFile kind : {StageFile::data, StageFile::list, StageFile::done})
    if (rest == endings[static_cast<std::size_t>(kind)]) {
      name.kind = kind;
      return name.text() == text ? std::optional(name) : std::nullopt;  // no "step-007"
    }
  return std::nullopt;
}

}  // namespace outcrop::aggregate
