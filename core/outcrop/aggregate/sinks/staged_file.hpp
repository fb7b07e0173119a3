// The shared file as an aggregator sees it through a stage on its node (stage.hpp): written there, read from there where
// the bytes are, else from the file once all is drained.
//
// Each file has a folder of its own in the stage's, named after it, and each domain is a writer there, with its number. What
// an earlier run has left is dealt with by one rank of each node before anything else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/domain_work.hpp"
#include "outcrop/aggregate/sinks/access.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/aggregate/sinks/stage.hpp"

namespace outcrop::aggregate {

class StagedFile final : public Sink {
 public:
  /// `step`: what a step of this domain has. Throws InputError, StorageError as Stage does.
  StagedFile(StageSpec spec, const RunTotals &step, Path way, bool ample_room);

  void begin_step(std::uint64_t step, std::uint64_t base) override;
  void end_step() override { stage_.seal(); }
  void drop_step() override { stage_.drop(); }
  void write(std::uint64_t offset, const std::byte *data, std::size_t length) override;
  void read(std::uint64_t offset, std::byte *data, std::size_t length) override;
  bool reads_holes() const override { return false; }  // they are not in the stage
  void flush() override { stage_.finish(); }
  bool flushes_for_node() const override { return false; }
  void forget() override { stage_.forget(); }

 private:
  const RunTotals step_;
  Access file_;
  Stage stage_;
};

/// Where steps of `file` are staged in `stage_folder`.
std::string stage_of_file(const std::string &stage_folder, const std::string &file);

/// Drains what an earlier run has staged in `folder` into `file`, or discards it. What was there, one line each. Throws
/// InputError where it cannot be drained, a writer lives, or another rank has not recovered it within `seconds`; StorageError.
std::vector<std::string> settle_stage(const std::string &folder, const std::string &file, bool discard, double seconds);

/// Throws InputError when `room_bytes`, of this writer, are too few for one step; 0 are enough.
void check_room(std::uint64_t room_bytes, const RunTotals &step);

}  // namespace outcrop::aggregate
