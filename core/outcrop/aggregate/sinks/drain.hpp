// From a stage to the target: one step while its writer lives, or all that dead writers have left (stage.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/sinks/stage_list.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/storage/files.hpp"

namespace outcrop::aggregate {

/// Copies every run to `target`, tests its checksum first, makes the target durable, and notes in `folder` that the step is
/// done. Throws InputError where the list is of another file, CorruptionError, StorageError; it may be called again then.
void drain_step(Files &files, outcrop::Folder &folder, const StageList &list, const std::string &target);

/// The list of that name in `folder`. Throws CorruptionError, StorageError.
StageList read_list(outcrop::Folder &folder, const StageName &name);

inline constexpr double wait_for_ever = std::numeric_limits<double>::infinity();

struct Recovery {
  std::vector<StageList> drained{};   ///< staged before a crash, and now in their targets
  std::vector<StageName> lost{};      ///< steps of writers whose bytes were not all staged when they ended
  std::vector<std::string> failed{};  ///< why a staged step could not be drained; it stays
  std::vector<std::uint32_t> busy{};  ///< writers that live and drain for themselves
};

/// Drains what dead writers have left in `folder`, one caller after the other, in the order of steps, and removes what is lost or no longer needed. A
/// step that fails keeps the later ones of its writer from being drained: they may be newer bytes of the same places.
/// Nothing but `target` is written to: what lists say of another file fails. A folder that is not there holds nothing.
/// Throws StorageError when the folder cannot be read, InputError when it is another user's, or another caller has not ended
/// within `seconds`.
Recovery recover_stage(const std::string &folder, const std::string &target, double seconds = wait_for_ever,
                       Files &files = Files::system());

/// The bytes of a run, from the data file, checked, at `bytes`. Throws CorruptionError, StorageError.
std::span<const std::byte> read_run(const OpenFile &data, const StagedRun &run, std::byte *bytes);

/// Where in `memory`, which holds a page more than the run, it is as far into a page as in the data file and in the target:
/// then whole pages go around the page cache.
std::byte *place_of(const StagedRun &run, const AlignedMemory &memory);

/// Removes the files of a step that is done, the data first: a `done` without data is harmless.
void remove_step(outcrop::Folder &folder, std::uint64_t step, std::uint32_t writer);

/// Removes the files of a step that shall not be drained, the list first, for good: from then on it is not staged.
void drop_step(outcrop::Folder &folder, std::uint64_t step, std::uint32_t writer);

/// Removes what dead writers have left in `folder`, for a target that is made anew: what has been staged is in `lost`.
Recovery discard_stage(const std::string &folder, double seconds = wait_for_ever, Files &files = Files::system());

}  // namespace outcrop::aggregate
