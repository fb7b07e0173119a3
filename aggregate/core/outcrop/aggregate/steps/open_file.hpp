// What a rank keeps of an open file, and how it is opened, whatever the sinks are (sink.hpp).
//
//     modes agreed on ─► stages of earlier runs settled ─► rank 0 creates the file ─► each aggregator opens its sink
//                        (one rank of each node)           (leaders their node's)
//
// After each of these all ranks agree that nothing has failed.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/aggregate/steps/engine.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop::aggregate {

struct FileOptions {
  bool durable = false;  ///< each write ends with its bytes on the device
  CacheMode cache_mode = CacheMode::automatic;
  std::uint64_t size_bytes = 0;  ///< create: of the whole file, set once; 0: it grows
  /// A folder on a tier of this node; nodes may have different ones. Writes end when their bytes are durable there, and get to
  /// the file in the background. Empty: straight to the file.
  std::string stage_folder = {};
  std::uint64_t stage_bytes =
      0;  ///< the maximum that the stage takes on a node, shared by its aggregators; 0: all room
  /// More folders in which an earlier run may have staged steps of this file. They are settled as stage_folder is.
  std::vector<std::string> settle_folders = {};
  bool node_files = false;  ///< a file for each node and `path`.index, for reading and merge() (node_files.hpp)
  Faults faults = {};       ///< simulated errors of storage at aggregators (tests)
};

struct Opened {
  std::shared_ptr<Engine> engine;
  std::string path;
  FileOptions options;
  bool writable = false, closed = false;
  bool ample_room = false;                     // see OpenMode
  std::vector<std::shared_ptr<Sink>> sinks{};  // for each domain of this rank
  std::vector<std::string> notes{};
  std::uint64_t steps = 0;           // of writing, begun so far
  std::set<std::uint64_t> staged{};  // bases of which bytes may be in a stage
  NodeIndex index{};                 // of node files

  bool is_staged() const { return !options.stage_folder.empty(); }
};

/// All ranks learn whether any of them failed, and throw that failure.
void agree(const std::shared_ptr<Engine> &engine, const Failure &failure);

/// Collective, as File::create and File::open.
std::unique_ptr<Opened> open_file(std::shared_ptr<Engine> of_plan, const std::string &path, bool writable, bool create,
                                  const FileOptions &options);

/// Called before a step at `base`. Its bytes may overlap those of other bases, which may be with other aggregators. Then stages are
/// emptied first. Collective, and decided alike by all ranks.
void meet_staged(Opened &opened, bool write, std::uint64_t base);

/// Collective: makes all that was written durable in its files.
void flush_all(Opened &opened);

}  // namespace outcrop::aggregate
