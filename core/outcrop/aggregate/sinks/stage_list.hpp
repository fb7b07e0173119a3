// What one writer has staged of one step, as a small text file that is written last:
//
//     step-7.writer-3.data    the bytes, run after run, each as far into a page as it is in the target
//     step-7.writer-3.list    where each run belongs, and its checksum: the step is staged once this is there
//     step-7.writer-3.done    the same file, renamed once all of it is durable in the target
//
// A list is a listing (listing.hpp): one that was being written when the machine stopped is none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace outcrop::aggregate {

/// `length` bytes at `data` of the data file that belong at `target` of the target file. `checksum` is their CRC32C.
struct StagedRun {
  std::uint64_t target = 0;
  std::uint64_t length = 0;
  std::uint64_t data = 0;
  std::uint32_t checksum = 0;
  bool operator==(const StagedRun &) const = default;
};

struct StageList {
  std::string target;  ///< path of the file that these bytes belong to
  std::uint64_t step = 0;
  std::uint32_t writer = 0;
  std::vector<StagedRun> runs{};
  bool operator==(const StageList &) const = default;
};

/// Ends in a checksum of itself.
std::string to_text(const StageList &list);

/// The list in `text`, which is that of file `path`. Throws CorruptionError when it is not whole.
StageList stage_list_of(const std::string &text, const std::string &path);

/// What a file of a stage's folder is.
enum class StageFile { data, list, done };

/// The name of a file in a stage's folder, and what it tells.
struct StageName {
  std::uint64_t step = 0;
  std::uint32_t writer = 0;
  StageFile kind = StageFile::data;

  std::string text() const;

  /// Nothing for other names.
  static std::optional<StageName> of(const std::string &text);
};

}  // namespace outcrop::aggregate
