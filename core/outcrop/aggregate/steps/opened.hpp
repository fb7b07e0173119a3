// What a rank keeps of a file that is open, and how it is opened: whatever the sinks are (sink.hpp).
//
//     manner agreed on ─► stages of earlier runs settled ─► rank 0 makes the file ─► each aggregator its sink
//                         (one rank of each node)           (leaders theirs)
//
// After each of these all ranks agree that nothing has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "outcrop/aggregate/sinks/node_index.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/aggregate/steps/engine.hpp"
#include "outcrop/aggregate/steps/file_options.hpp"

namespace outcrop::aggregate {

struct Opened {
  std::shared_ptr<Engine> engine;
  std::string path;
  FileOptions options;
  bool writable = false, closed = false;
  bool ample_room = false;                     // see Manner
  std::vector<std::shared_ptr<Sink>> sinks{};  // for each domain of this rank
  std::vector<std::string> notes{};
  std::uint64_t steps = 0;           // of writing, begun so far
  std::set<std::uint64_t> staged{};  // bases of which something may be in a stage
  NodeIndex index{};                 // of node files

  bool is_staged() const { return !options.stage_folder.empty(); }
};

/// All ranks learn whether any of them failed, and throw that.
void agree(const std::shared_ptr<Engine> &engine, const Failure &failure);

/// Collective, as File::create and File::open.
std::unique_ptr<Opened> open_file(std::shared_ptr<Engine> of_plan, const std::string &path, bool writable, bool create,
                                  const FileOptions &options);

/// A step at `base` is about to begin. Bytes of other bases that it meets may be with other aggregators, in another order:
/// then stages are emptied first. Collective, and decided alike by all ranks.
void meet_staged(Opened &opened, bool write, std::uint64_t base);

/// Collective: all that was written is durable where it belongs.
void flush_all(Opened &opened);

}  // namespace outcrop::aggregate
