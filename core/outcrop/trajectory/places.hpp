// The directories of a trajectory, and the files of its states.
//
//     history/trajectory.txt      the manifest
//     history/trajectory.txt.tmp  room for the next manifests
//     history/unfinished.txt      the manifest, while files are made or removed
//     history/zarr.json           group of Zarr; contains the metadata of its arrays
//     history/u/zarr.json         array (time, *shape)
//     history/u/c.K.0.0.0         field u of state K, or a link to this file in a further directory
//     further/member.txt          names the trajectory
//     further/u/c.K.0.0.0
//
// All files of states are made before the first state is pushed. When a file is made, all of its bytes are allocated,
// and its index is written. States in memory get files only if the directories have room for all states.
//
// A process that makes or removes files can be killed. So unfinished.txt is made first and removed last. The next
// create() in the same directories reads in unfinished.txt which files it must remove.
//
// The content of a directory is not trusted. Files are opened beneath the directory without following links. A further
// directory is used only if its file member.txt names the trajectory. The links in the first directory are for programs
// that read Zarr. Outcrop itself does not use these links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/storage/file.hpp"
#include "outcrop/trajectory/layout.hpp"

namespace outcrop {

/// A directory for the files of a trajectory. `bytes` is the maximum size of all files of states together. If `bytes`
/// is 0, the files may use all free bytes.
struct DirectoryLimit {
  std::string path;
  std::uint64_t bytes = 0;
};

/// An open directory, or the folder of a field in a directory.
struct OpenFolder {
  std::string path;
  Descriptor handle;
  std::optional<File> sample{};  ///< a file that was opened in the folder; it shows whether direct transfers work

  std::string path_of(const std::string &name) const { return path + "/" + name; }
};

class Places {
 public:
  /// Makes an empty trajectory with `memory_bytes` of memory for states. A directory that exists must be empty or
  /// contain an unfinished trajectory. The files of the unfinished trajectory are removed. Throws InputError if the
  /// directories and the memory have no room for `states` states, or if a directory cannot be used. Throws
  /// StorageError. After a failure, no new file remains.
  static Places create(const StateLayout &layout, std::uint64_t states, std::uint64_t memory_bytes,
                       const std::vector<DirectoryLimit> &directories);

  /// Opens a trajectory. Throws InputError if the directory contains no trajectory, or if another process uses the
  /// trajectory. Throws StorageError if a file cannot be read, and CorruptionError if a file is damaged.
  static Places open(const std::string &path);

  const StateLayout &layout() const { return layout_; }
  const TrajectoryManifest &manifest() const { return manifest_; }
  const std::string &path() const { return folders_[0].path; }

  bool has_file(std::uint64_t state) const;

  /// Opens the file of a field. Throws StorageError.
  File open_file(std::size_t field, std::uint64_t state, bool direct);

  /// Flushes the files of the states first <= k < last. Throws StorageError.
  void flush(std::uint64_t first, std::uint64_t last);

  /// Commits all states of the trajectory. `sums` has their checksums. Throws StorageError. After an error, the last
  /// commit is still valid. It is not an error if only the metadata files for Zarr cannot be written.
  void commit(std::vector<std::uint32_t> sums);

  /// Returns the path of a file, for messages.
  std::string label(std::size_t field, std::uint64_t state) const;

  /// Closes the directories, and so releases the locks on them.
  void close();

  /// Deletes all files of the trajectory, and the directories if they are empty. Throws StorageError.
  void remove();

 private:
  Places(StateLayout layout, TrajectoryManifest manifest)
      : layout_(std::move(layout)), manifest_(std::move(manifest)) {}

  std::size_t place_of(std::uint64_t state) const;
  static void remove_unfinished(const std::vector<DirectoryLimit> &directories);
  void make_files();
  void keep_room(std::uint64_t bytes);
  void show_states();
  void remove_files();

  StateLayout layout_;
  TrajectoryManifest manifest_;
  std::vector<OpenFolder> folders_;
};

}  // namespace outcrop
