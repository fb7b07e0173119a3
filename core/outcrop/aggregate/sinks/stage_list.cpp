#include "outcrop/aggregate/sinks/stage_list.hpp"

#include <array>
#include <sstream>
#include <string_view>

#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::string_view head = "outcrop stage 1\n";
constexpr std::array<std::string_view, 3> endings{".data", ".list", ".done"};  // in the order of StageFile

bool take_run(std::string_view &text, StagedRun &run) {
  return take(text, "run ") && take_number(text, run.target) && take(text, " ") && take_number(text, run.length) &&
         take(text, " ") && take_number(text, run.data) && take(text, " ") && take_number(text, run.checksum) &&
         take(text, "\n");
}

bool take_list(std::string_view text, StageList &list) {
  if (!take(text, head) || !take(text, "target ") || !take_rest(text, list.target)) return false;
  if (!take(text, "step ") || !take_number(text, list.step)) return false;
  if (!take(text, "\nwriter ") || !take_number(text, list.writer) || !take(text, "\n")) return false;
  for (StagedRun run; !text.empty(); list.runs.push_back(run))
    if (!take_run(text, run)) return false;
  return true;
}

}  // namespace

std::string to_text(const StageList &list) {
  std::ostringstream text;
  text << head << "target " << list.target << "\nstep " << list.step << "\nwriter " << list.writer << '\n';
  for (const StagedRun &run : list.runs)
    text << "run " << run.target << ' ' << run.length << ' ' << run.data << ' ' << run.checksum << '\n';
  return with_checksum(text.str());
}

StageList stage_list_of(const std::string &text, const std::string &path) {
  StageList list;
  if (!take_list(checked_lines(text, path), list))
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
