#include "outcrop/aggregate/sinks/drain.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include "outcrop/aggregate/sinks/stage.hpp"
#include "outcrop/aggregate/text/listing.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/crc32c.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {
namespace {

std::string path_of(const std::string &folder, std::uint64_t step, std::uint32_t writer, StageFile kind) {
  return folder + "/" + StageName{step, writer, kind}.text();
}

// The kinds of a stage's files, by writer and step.
std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<StageFile>> files_in(const std::string &folder) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<StageFile>> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const auto name = StageName::of(entry->path().filename().string()))
      found[{name->writer, name->step}].push_back(name->kind);
  if (error) throw StorageError("read", folder, 0, 0, error.value());
  return found;
}

bool has(const std::vector<StageFile> &kinds, StageFile kind) { return std::ranges::find(kinds, kind) != kinds.end(); }

}  // namespace

void drain_step(const std::string &folder, const StageList &list) {
  const std::string data_path = path_of(folder, list.step, list.writer, StageFile::data);
  const outcrop::File data = outcrop::File::open(data_path, false, true);
  const outcrop::File target = outcrop::File::open(list.target, true, true);
  std::uint64_t longest = 0;
  for (const StagedRun &run : list.runs) longest = std::max(longest, run.length);
  const AlignedMemory memory(longest + AlignedMemory::page_bytes);
  for (const StagedRun &run : list.runs)
    target.write(run.target, read_run(data, run, place_of(run, memory)).data(), run.length);
  target.flush();
  const std::string done = path_of(folder, list.step, list.writer, StageFile::done);
  const std::string staged = path_of(folder, list.step, list.writer, StageFile::list);
  if (std::rename(staged.c_str(), done.c_str()) != 0) throw StorageError("rename", staged, 0, 0, errno);
}

std::byte *place_of(const StagedRun &run, const AlignedMemory &memory) {
  return memory.data() + run.data % AlignedMemory::page_bytes;
}

std::span<const std::byte> read_run(const outcrop::File &data, const StagedRun &run, std::byte *bytes) {
  data.read(run.data, bytes, run.length);
  if (crc32c({bytes, run.length}) != run.checksum)
    throw CorruptionError(data.path() + " is damaged at offset " + std::to_string(run.data) + ", length " +
                          std::to_string(run.length) + ": checksum mismatch");
  return {bytes, run.length};
}

StageList read_list(const std::string &folder, const StageName &name) {
  const std::string path = folder + "/" + name.text();
  StageList list = stage_list_of(read_text(path), path);
  if (list.step != name.step || list.writer != name.writer)
    throw CorruptionError(path + " is the list of another step or writer");
  return list;
}

void remove_step(const std::string &folder, std::uint64_t step, std::uint32_t writer) {
  for (const StageFile kind : {StageFile::data, StageFile::list, StageFile::done})
    ::unlink(path_of(folder, step, writer, kind).c_str());
  ::unlink((path_of(folder, step, writer, StageFile::list) + unfinished).c_str());
}

void drop_step(const std::string &folder, std::uint64_t step, std::uint32_t writer) {
  ::unlink(path_of(folder, step, writer, StageFile::list).c_str());
  remove_step(folder, step, writer);
}

namespace {

// Until the descriptor is closed no other caller recovers, so that whom this one finds busy lives.
Descriptor hold_recovery(const std::string &folder) {
  const std::string path = folder + "/recovery.lock";
  Descriptor held(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (held.get() < 0 || flock(held.get(), LOCK_EX) != 0) throw StorageError("lock", path, 0, 0, errno);
  return held;
}

// Writers that are dead, and stay so while the result lives; the others are noted.
std::map<std::uint32_t, Descriptor> hold_dead(const std::string &folder, std::vector<std::uint32_t> &busy) {
  std::map<std::uint32_t, Descriptor> held;
  for (const auto &[key, kinds] : files_in(folder)) {
    const std::uint32_t writer = key.first;
    if (held.contains(writer) || std::ranges::find(busy, writer) != busy.end()) continue;
    try {
      held.emplace(writer, hold_stage(folder, writer));
    } catch (const InputError &) {
      busy.push_back(writer);
    }
  }
  return held;
}

}  // namespace

Recovery recover_stage(const std::string &folder) {
  Recovery recovery;
  const Descriptor alone = hold_recovery(folder);
  const std::map<std::uint32_t, Descriptor> held = hold_dead(folder, recovery.busy);
  std::set<std::uint32_t> stuck;
  for (const auto &[key, kinds] : files_in(folder)) {  // by writer, then by step
    const auto &[writer, step] = key;
    if (!held.contains(writer) || stuck.contains(writer)) continue;
    if (has(kinds, StageFile::list)) {
      try {
        StageList list = read_list(folder, {step, writer, StageFile::list});
        drain_step(folder, list);
        recovery.drained.push_back(std::move(list));
      } catch (const std::runtime_error &error) {
        recovery.failed.push_back(error.what());
        stuck.insert(writer);
        continue;
      }
    } else if (!has(kinds, StageFile::done)) {
      recovery.lost.push_back({step, writer, StageFile::data});
    }
    flush_folder(folder);
    remove_step(folder, step, writer);
  }
  return recovery;
}

Recovery discard_stage(const std::string &folder) {
  Recovery recovery;
  const Descriptor alone = hold_recovery(folder);
  const std::map<std::uint32_t, Descriptor> held = hold_dead(folder, recovery.busy);
  for (const auto &[key, kinds] : files_in(folder)) {
    const auto &[writer, step] = key;
    if (!held.contains(writer)) continue;
    if (!has(kinds, StageFile::done)) recovery.lost.push_back({step, writer, StageFile::data});
    drop_step(folder, step, writer);
  }
  return recovery;
}

}  // namespace outcrop::aggregate
