// What may be chosen about a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/aggregate/sinks/path.hpp"
#include "outcrop/storage/faulty.hpp"

namespace outcrop::aggregate {

struct FileOptions {
  bool durable = false;  ///< every write ends with its bytes on the device
  Path path = Path::automatic;
  std::uint64_t size_bytes = 0;  ///< create: of the whole file, set once; 0: it grows
  /// A folder on a tier of this node, which may differ from node to node: writes end when their bytes are durable there, and
  /// get to the file in the background. Empty: straight to the file.
  std::string stage_folder = {};
  std::uint64_t stage_bytes = 0;  ///< that the stage may take on a node, shared by its aggregators; 0: what there is
  /// Folders in which an earlier run may have staged steps of this file: they are dealt with as those of stage_folder are.
  std::vector<std::string> settle_folders = {};
  bool node_files = false;  ///< a file for each node and `path`.index, for reading and merge() (node_files.hpp)
  Faults faults = {};       ///< what shall go wrong with storage at aggregators (tests)
};

}  // namespace outcrop::aggregate
