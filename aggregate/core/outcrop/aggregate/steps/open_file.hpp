// An open file at one rank, and the functions by which all ranks open a file together. These functions work for all
// kinds of sinks (sink.hpp).
//
//     agree on the mode ─► settle stages of earlier programs ─► rank 0 creates the file ─► each aggregator opens its sink
//                          (one rank of each node)              (node files: one rank of each node)
//
// After each phase, all ranks check that no rank has failed.
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
  bool durable = false;  ///< true if a write ends only when its bytes are on the device
  CacheMode cache_mode = CacheMode::automatic;
  std::uint64_t size_bytes = 0;  ///< for create: the fixed size of the file; 0: the file grows
  /// The folder of the stage, on a tier of this node. Nodes may have different folders. A write ends when its bytes are
  /// durable in the folder. Later the bytes are copied to the file in the background. If `stage_folder` is empty, bytes
  /// are written directly to the file.
  std::string stage_folder = {};
  /// The maximum size of the stage on a node, in bytes. The aggregators of the node share this room. The value 0 means
  /// that a stage may use all free bytes.
  std::uint64_t stage_bytes = 0;
  /// Other stage folders of this node. Steps of this file that an earlier program has left in these folders are drained
  /// or discarded, as in `stage_folder`.
  std::vector<std::string> settle_folders = {};
  /// If true, each node has its own file, and an index `path`.index lists these files (node_files.hpp).
  bool node_files = false;
  Faults faults = {};  ///< simulated errors of storage at aggregators, for tests
};

struct Opened {
  std::shared_ptr<Engine> engine;
  std::string path;
  FileOptions options;
  bool writable = false, closed = false;
  bool ample_room = false;                     // see OpenMode
  std::vector<std::shared_ptr<Sink>> sinks{};  // the sink of each domain of this rank
  std::vector<std::string> notes{};
  std::uint64_t steps = 0;           // the number of writes that have begun
  std::set<std::uint64_t> staged{};  // the bases of steps that may still be in a stage
  NodeIndex index{};                 // used only with node files

  bool is_staged() const { return !options.stage_folder.empty(); }
};

/// Collective. If any rank passes a failure, throws this failure on all ranks.
void agree(const std::shared_ptr<Engine> &engine, const Failure &failure);

/// Collective. This function does the work of File::create and File::open.
std::unique_ptr<Opened> open_file(std::shared_ptr<Engine> of_plan, const std::string &path, bool writable, bool create,
                                  const FileOptions &options);

/// Collective. Prepares the stages for a step at `base`. If the step can overlap a staged step that has another base,
/// empties all stages. Otherwise the order of the two steps could be lost, because different aggregators can have the
/// overlapping bytes.
void meet_staged(Opened &opened, bool write, std::uint64_t base);

/// Collective. Makes all written bytes durable in the file.
void flush_all(Opened &opened);

}  // namespace outcrop::aggregate
