#include "outcrop/aggregate/sinks/stage.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop::aggregate {

// --- the files of a stage ------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view head = "outcrop stage 1\n";
constexpr std::array<std::string_view, 3> endings{".data", ".list", ".done"};  // in the order of enum StageFile

bool take_list(std::string_view text, StageList &list) {
  if (!take_all(text, head, "target ") || !take_rest(text, list.target)) return false;
  if (take(text, "identity ") && !take_rest(text, list.identity)) return false;
  if (!take_all(text, "step ", list.step, "\nwriter ", list.writer, "\n")) return false;
  for (StagedRun run; !text.empty(); list.runs.push_back(run))
    if (!take_all(text, "run ", run.target, " ", run.length, " ", run.data, " ", run.checksum, "\n")) return false;
  return true;
}

}  // namespace

std::string to_text(const StageList &list) {
  std::ostringstream text;
  text << head << "target " << list.target << '\n';
  if (!list.identity.empty()) text << "identity " << list.identity << '\n';
  text << "step " << list.step << "\nwriter " << list.writer << '\n';
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
  if (!take_all(rest, "step-", name.step, ".writer-", name.writer)) return std::nullopt;
  for (const StageFile kind : {StageFile::data, StageFile::list, StageFile::done})
    if (rest == endings[static_cast<std::size_t>(kind)]) {
      name.kind = kind;
      // refuses names with other spellings of the numbers, such as "step-007"
      return name.text() == text ? std::optional(name) : std::nullopt;
    }
  return std::nullopt;
}

std::uint64_t room_of_step(std::uint64_t bytes, std::size_t runs) {
  return bytes + (2 * runs + 1) * AlignedMemory::page_bytes;
}

std::unique_ptr<FolderLock> lock_stage(Folder &folder, std::uint32_t writer) {
  std::unique_ptr<FolderLock> lock = folder.hold("writer-" + std::to_string(writer) + ".lock", 0);
  if (!lock)
    throw InputError(folder.path() + " is in use by another process as writer " + std::to_string(writer) +
                     "; wait for it or stop it");
  return lock;
}

// --- draining and recovery -----------------------------------------------------------------------------------------

namespace {

// Longer contiguous runs are read in parts of this size. A staged run is read twice: first to test its checksum, and
// then to copy its bytes. An invalid list may contain a very long run. Without this limit, the program could allocate
// too much memory for such a run.
constexpr std::uint64_t part_bytes = std::uint64_t{16} << 20;
constexpr std::uint64_t max_target_end = std::uint64_t{1} << 62;

// the kinds of files of each step; the key is (writer, step)
using StagedFiles = std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<StageFile>>;

std::string name_of(std::uint64_t step, std::uint32_t writer, StageFile kind) {
  return StageName{step, writer, kind}.text();
}

StagedFiles files_in(Folder &folder) {
  StagedFiles found;
  for (const std::string &each : folder.names())
    if (const auto name = StageName::of(each)) found[{name->writer, name->step}].insert(name->kind);
  return found;
}

// Returns true if two paths lead to the same file. Follows symbolic links.
bool is_same_file(const std::string &one, const std::string &other) {
  std::error_code failed;
  const auto plain = [&](const std::string &path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, failed), failed);
  };
  return one == other || (plain(one) == plain(other) && !failed);
}

// Throws an error if `list` is invalid. Another user may have written the list. Therefore this function checks the
// whole list before any run is copied.
void check_list(const StageList &list, const OpenFile &data, const std::string &target) {
  if (!is_same_file(list.target, target))
    throw InputError(data.path() + " is staged for " + list.target + ", not for " + target);
  const std::uint64_t size = data.size();
  std::vector<StagedRun> runs = list.runs;
  const auto refuse = [&](const StagedRun &run, const std::string &why) {
    throw CorruptionError(data.path() + " has no run of " + std::to_string(run.length) + " bytes at offset " +
                          std::to_string(run.data) + " for offset " + std::to_string(run.target) + ": " + why);
  };
  for (const StagedRun &run : runs) {
    if (run.length > size || run.data > size - run.length)
      refuse(run, "the file has " + std::to_string(size) + " bytes");
    if (run.length > max_target_end || run.target > max_target_end - run.length)
      refuse(run, "it ends beyond 2^62 bytes");
  }
  const auto overlaps = [&](auto begin, const char *where) {
    std::ranges::sort(runs, {}, begin);
    for (std::size_t i = 1; i < runs.size(); ++i)
      if (runs[i].*begin < runs[i - 1].*begin + runs[i - 1].length)
        refuse(runs[i], std::string("another run overlaps it in the ") + where);
  };
  overlaps(&StagedRun::data, "stage");
  overlaps(&StagedRun::target, "target");
}

// Reads a staged contiguous run of bytes in parts. Calls visit(offset in the run, bytes) for every part.
template <typename Visit>
void read_parts(const OpenFile &data, const StagedRun &run, const AlignedMemory &memory, Visit &&visit) {
  for (std::uint64_t at = 0; at < run.length; at += part_bytes) {
    const StagedRun part{run.target + at, std::min(part_bytes, run.length - at), run.data + at, 0};
    std::byte *bytes = place_of(part, memory);
    data.read(part.data, bytes, part.length);
    visit(at, std::span<const std::byte>(bytes, part.length));
  }
}

void check_sum(const OpenFile &data, const StagedRun &run, std::uint32_t checksum) {
  if (checksum != run.checksum)
    throw CorruptionError(data.path() + " is damaged at offset " + std::to_string(run.data) + ", length " +
                          std::to_string(run.length) + ": checksum mismatch");
}

void copy_run(const OpenFile &data, const StagedRun &run, OpenFile &target, const AlignedMemory &memory) {
  if (run.length <= part_bytes) {
    target.write(run.target, read_run(data, run, place_of(run, memory)).data(), run.length);
    return;
  }
  std::uint32_t checksum = 0;
  read_parts(data, run, memory,
             [&](std::uint64_t, std::span<const std::byte> bytes) { checksum = crc32c(bytes, checksum); });
  check_sum(data, run, checksum);
  read_parts(data, run, memory, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    target.write(run.target + at, bytes.data(), bytes.size());
  });
}

}  // namespace

void drain_step(Files &files, Folder &folder, const StageList &list, const std::string &target_path) {
  const std::unique_ptr<OpenFile> data = folder.open(name_of(list.step, list.writer, StageFile::data), false, true);
  check_list(list, *data, target_path);
  const std::unique_ptr<OpenFile> target = files.open(target_path, true, true);
  std::uint64_t longest = 0;
  for (const StagedRun &run : list.runs) longest = std::max(longest, std::min(run.length, part_bytes));
  const AlignedMemory memory(longest + AlignedMemory::page_bytes);
  for (const StagedRun &run : list.runs) copy_run(*data, run, *target, memory);
  target->flush();
  folder.rename(name_of(list.step, list.writer, StageFile::list), name_of(list.step, list.writer, StageFile::done));
}

std::byte *place_of(const StagedRun &run, const AlignedMemory &memory) {
  return memory.data() + run.data % AlignedMemory::page_bytes;
}

std::span<const std::byte> read_run(const OpenFile &data, const StagedRun &run, std::byte *bytes) {
  data.read(run.data, bytes, run.length);
  check_sum(data, run, crc32c({bytes, run.length}));
  return {bytes, run.length};
}

StageList read_list(Folder &folder, const StageName &name) {
  const std::string path = folder.path() + "/" + name.text();
  StageList list = stage_list_of(read_text(folder, name.text()), path);
  if (list.step != name.step || list.writer != name.writer)
    throw CorruptionError(path + " is the list of another step or writer");
  return list;
}

void remove_step(Folder &folder, std::uint64_t step, std::uint32_t writer) {
  for (const StageFile kind : {StageFile::data, StageFile::list, StageFile::done})
    folder.remove(name_of(step, writer, kind));
  folder.remove(name_of(step, writer, StageFile::list) + unfinished);
}

// Removes the list first, and makes this removal durable. Then removes the other files of the step. Without this order,
// the list could reappear after a power cut, and could describe the data of another step.
void drop_step(Folder &folder, std::uint64_t step, std::uint32_t writer) {
  if (folder.remove(name_of(step, writer, StageFile::list))) folder.flush();
  remove_step(folder, step, writer);
}

namespace {

// Locks the folder for recovery. While the returned lock exists, no other process recovers this folder. Then only a
// writer itself can hold its lock. A writer whose lock is held is therefore alive.
std::unique_ptr<FolderLock> lock_recovery(Folder &folder, double seconds) {
  std::unique_ptr<FolderLock> lock = folder.hold("recovery.lock", seconds);
  if (!lock) throw InputError(folder.path() + " is being recovered by another process; wait for it or stop it");
  return lock;
}

using WriterLocks = std::map<std::uint32_t, std::unique_ptr<FolderLock>>;

// Takes and returns the lock of each dead writer. A writer is dead if its process has ended. While the returned locks
// exist, no new writer can use the numbers of the dead writers. Adds the living writers to `busy`.
WriterLocks lock_dead_writers(Folder &folder, std::vector<std::uint32_t> &busy) {
  WriterLocks locks;
  for (const auto &[key, kinds] : files_in(folder)) {
    const std::uint32_t writer = key.first;
    if (locks.contains(writer) || std::ranges::find(busy, writer) != busy.end()) continue;
    try {
      locks.emplace(writer, lock_stage(folder, writer));
    } catch (const InputError &) {
      busy.push_back(writer);
    }
  }
  return locks;
}

// If a list of a step still exists, removes the mark `done` from all later steps of the same writer. The writer has
// renamed its lists to `done`, one after the other, in the order of its steps. However, a power cut may undo the
// renaming of an earlier list, but keep the renaming of a later list. In this case, the earlier step is drained again.
// All later steps must then also be drained again.
void undo_after_lists(Folder &folder, const WriterLocks &dead) {
  std::set<std::uint32_t> writers;                     // the writers for which a list was found
  for (const auto &[key, kinds] : files_in(folder)) {  // the files are sorted by writer, then by step
    const auto &[writer, step] = key;
    if (!dead.contains(writer)) continue;
    if (kinds.contains(StageFile::list)) {
      writers.insert(writer);
    } else if (writers.contains(writer) && kinds.contains(StageFile::done) && kinds.contains(StageFile::data)) {
      folder.rename(name_of(step, writer, StageFile::done), name_of(step, writer, StageFile::list));
    }
  }
}

// Takes the locks of the folder and of its dead writers. Then calls settle(folder, dead writers, result), and returns
// the result. The result is empty if the folder does not exist.
template <typename Settle>
Recovery with_dead_writers(const std::string &path, double seconds, Files &files, Settle &&settle) {
  Recovery recovery;
  const std::unique_ptr<Folder> folder = files.own_folder(path, false);
  if (!folder) return recovery;
  const std::unique_ptr<FolderLock> alone = lock_recovery(*folder, seconds);
  const WriterLocks dead = lock_dead_writers(*folder, recovery.busy);
  settle(*folder, dead, recovery);
  folder->flush();  // without this flush, removed files could reappear beside a new step with the same number
  return recovery;
}

// Throws an error if the target was created again after the stage got the step.
void check_identity(const Folder &folder, const StageList &list, const std::string &identity) {
  if (list.identity.empty() || identity.empty() || list.identity == identity) return;
  throw InputError(folder.path() + "/" + name_of(list.step, list.writer, StageFile::list) + " belongs to an earlier " +
                   list.target + ", which was created again later; remove " + folder.path() + " to drop its steps");
}

void drain_dead_writers(Files &files, Folder &folder, const WriterLocks &dead, const std::string &target,
                        const std::string &identity, Recovery &recovery) {
  undo_after_lists(folder, dead);
  // A writer may have been killed before it flushed its list. This flush makes the list durable. Without this flush, a
  // power cut during the drain could remove the list, and leave only a part of the step in the target.
  folder.flush();
  std::set<std::uint32_t> stuck;
  for (const auto &[key, kinds] : files_in(folder)) {  // the files are sorted by writer, then by step
    const auto &[writer, step] = key;
    if (!dead.contains(writer) || stuck.contains(writer)) continue;
    // A step counts as staged only if its data file and its list exist, and if the names of both files are durable.
    const bool staged = kinds.contains(StageFile::list) && kinds.contains(StageFile::data);
    if (staged) {
      try {
        StageList list = read_list(folder, {step, writer, StageFile::list});
        check_identity(folder, list, identity);
        drain_step(files, folder, list, target);
        recovery.drained.push_back(std::move(list));
      } catch (const std::runtime_error &error) {
        recovery.failed.push_back(error.what());
        stuck.insert(writer);
        continue;
      }
    } else if (!kinds.contains(StageFile::done)) {
      recovery.lost.push_back({step, writer, StageFile::data});
    }
    folder.flush();
    remove_step(folder, step, writer);
  }
}

}  // namespace

Recovery recover_stage(const std::string &path, const std::string &target, double seconds, Files &files,
                       const std::string &identity) {
  return with_dead_writers(path, seconds, files, [&](Folder &folder, const WriterLocks &dead, Recovery &recovery) {
    drain_dead_writers(files, folder, dead, target, identity, recovery);
  });
}

Recovery discard_stage(const std::string &path, double seconds, Files &files) {
  return with_dead_writers(path, seconds, files, [](Folder &folder, const WriterLocks &dead, Recovery &recovery) {
    for (const auto &[key, kinds] : files_in(folder)) {
      const auto &[writer, step] = key;
      if (!dead.contains(writer)) continue;
      if (!kinds.contains(StageFile::done)) recovery.lost.push_back({step, writer, StageFile::data});
      drop_step(folder, step, writer);
    }
  });
}

}  // namespace outcrop::aggregate
