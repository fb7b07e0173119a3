// The manifest of a trajectory: a text file that names the committed states. It is replaced by a rename, so a reader
// always finds a complete manifest: that of the last commit, or that of the commit before it.
//
//     outcrop trajectory 1
//     identity 5c0f...            a random name; the MEMBER files of further directories have the same name
//     dtype float32
//     field u 128 256 256         one line for each field
//     states 1000                 the maximum number of states
//     memory 8                    states 0 to 7 are in memory, until a commit writes them to files
//     place 400 .                 one line for each directory: the number of states for which it has files, its path
//     place 600 /scratch/me/history
//     state 1a2b3c4d 00c0ffee     one line for each committed state: the CRC32C of the cells of each field
//     crc32c 5e6f7788             the checksum of all lines before this one
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/trajectory/layout.hpp"

namespace outcrop {

/// A directory with files for `states` states. The path of the first directory of a trajectory is ".".
struct Place {
  std::string path;
  std::uint64_t states = 0;
};

struct TrajectoryManifest {
  std::string identity, dtype;
  std::vector<StateField> fields;
  std::uint64_t states = 0, memory_states = 0;
  std::vector<Place> places;
  std::vector<std::uint32_t> sums;  ///< for each committed state, the checksum of each field

  std::uint64_t committed() const { return sums.size() / fields.size(); }

  /// Returns whether the states in memory have files, too, so that a commit can write them.
  bool all_have_files() const;

  std::string to_text() const;

  /// Reads a manifest. Messages contain `label`, the path of the file. Throws CorruptionError if the text is damaged or
  /// was not written by Outcrop, and InputError if it has another format.
  static TrajectoryManifest parse(const std::string &text, const std::string &label);
};

/// The text of the MEMBER file of a further directory. It proves that the directory belongs to the trajectory.
std::string member_text(const std::string &identity, std::size_t place);

}  // namespace outcrop
