#include "outcrop/aggregate/sinks/staged_file.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "outcrop/aggregate/sinks/drain.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/crc32c.hpp"

namespace outcrop::aggregate {
namespace {

std::string name_of(std::uint64_t step, std::uint32_t writer) {
  return "step " + std::to_string(step) + " of aggregator " + std::to_string(writer);
}

}  // namespace

StagedFile::StagedFile(StageSpec spec, const RunTotals &step, Path way, bool ample_room)
    : step_(step), file_(spec.target, false, way, false, {.ample_room = ample_room}, {}), stage_(std::move(spec)) {}

void StagedFile::begin_step(std::uint64_t step, [[maybe_unused]] std::uint64_t base) {
  stage_.begin(step, step_.bytes, step_.long_runs);
}

void StagedFile::write(std::uint64_t offset, const std::byte *data, std::size_t length) {
  stage_.append(offset, {data, length});
}

void StagedFile::read(std::uint64_t offset, std::byte *data, std::size_t length) {
  if (stage_.read(offset, {data, length})) return;
  stage_.finish();
  file_.read(offset, data, length);
}

std::string stage_of_file(const std::string &stage_folder, const std::string &file) {
  const std::string whole = std::filesystem::weakly_canonical(std::filesystem::absolute(file)).string();
  std::array<char, 8> digits{};
  const auto [end, error] = std::to_chars(digits.begin(), digits.end(), crc32c(std::as_bytes(std::span(whole))), 16);
  return stage_folder + "/" + std::filesystem::path(whole).filename().string() + "-" + std::string(digits.begin(), end);
}

std::vector<std::string> settle_stage(const std::string &folder, const std::string &file, bool discard,
                                      double seconds) {
  std::vector<std::string> notes;
  const Recovery found = discard ? discard_stage(folder, seconds) : recover_stage(folder, file, seconds);
  if (!found.busy.empty())
    throw InputError(folder + " is in use by another process as aggregator " + std::to_string(found.busy.front()) +
                     "; wait for it or stop it");
  if (!found.failed.empty())
    throw InputError("what an earlier run has staged in " + folder + " cannot be drained: " + found.failed.front());
  for (const StageList &list : found.drained)
    notes.push_back(name_of(list.step, list.writer) + " was staged in " + folder +
                    " by an earlier run; it is in the file now");
  for (const StageName &name : found.lost)
    notes.push_back(name_of(name.step, name.writer) +
                    (discard
                         ? " was staged in " + folder + " by an earlier run; it was dropped, as the file is made anew"
                         : " is lost: its writer ended before all of it was staged in " + folder));
  return notes;
}

void check_room(std::uint64_t room_bytes, const RunTotals &step) {
  const std::uint64_t needed = room_of_step(step.bytes, step.long_runs);
  if (room_bytes == 0 || needed <= room_bytes) return;
  throw InputError("a step takes " + std::to_string(needed) +
                   " bytes of the stage at this aggregator, which may have " + std::to_string(room_bytes) +
                   "; give stage_bytes, which the node's aggregators share, more");
}

}  // namespace outcrop::aggregate
