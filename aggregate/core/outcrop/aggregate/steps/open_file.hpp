// An open file at one rank, and how all ranks open a file. This is the same for all kinds of sinks (sink.hpp).
//
//     agree on the mode ─► settle stages of earlier runs ─► rank 0 creates the file ─► each aggregator opens its sink
//                          (one rank of each node)          (node files: one rank of each node)
//
// After each phase all ranks check that none of them has failed.
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
  std::uint64_t size_bytes = 0;  ///< for create: the size of the file, set once; 0: the file grows
  /// A folder on a tier of this node. Nodes may have different folders. A write ends when its bytes are durable in the folder,
  /// and they are copied to the file in the background. Empty: bytes are written directly to the file.
  std::string stage_folder = {};
  /// The maximum bytes of the stage on a node, shared by its aggregators. 0: all free bytes.
  std::uint64_t stage_bytes = 0;
  /// Other folders in which an earlier run may have staged steps of this file. They are settled as stage_folder is.
  std::vector<std::string> settle_folders = {};
  bool node_files = false;  ///< one file for each node, and `path`.index, which read and merge() use (node_files.hpp)
  Faults faults = {};       ///< simulated errors of storage at aggregators, for tests
};

struct Opened {
  std::shared_ptr<Engine> engine;
  std::string path;
  FileOptions options;
  bool writable = false, closed = false;
  bool ample_room = false;                     // see OpenMode
  std::vector<std::shared_ptr<Sink>> sinks{};  // for each domain of this rank
  std::vector<std::string> notes{};
  std::uint64_t steps = 0;           // the number of writes begun so far
  std::set<std::uint64_t> staged{};  // the bases of steps that may be in a stage
  NodeIndex index{};                 // with node files only

  bool is_staged() const { return !options.stage_folder.empty(); }
};

/// Collective: throws on all ranks if any rank has a failure.
void agree(const std::shared_ptr<Engine> &engine, const Failure &failure);

/// Collective: see File::create and File::open.
std::unique_ptr<Opened> open_file(std::shared_ptr<Engine> of_plan, const std::string &path, bool writable, bool create,
                                  const FileOptions &options);

/// Collective: called before a step at `base`. If bytes of the step may overlap staged bytes of a step at another base, first
/// empties the stages, because the overlapping bytes may belong to different aggregators.
void meet_staged(Opened &opened, bool write, std::uint64_t base);

/// Collective: makes all written bytes durable in the file.
void flush_all(Opened &opened);

}  // namespace outcrop::aggregate
