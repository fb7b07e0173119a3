// This header describes the fields of a state, the layout of a state in memory and in files, and the manifest, which
// lists the committed states.
//
//     buffer:  | u, padding to pages | p, padding to pages |          one buffer holds one state
//     u/c.K.0.0.0:  | cells of u in state K, in C order | index |     one file for each state and field
//
// The file of a field has the same format as a snapshot of a run. If the field has three or more axes, the file is a
// shard of Zarr v3. The inner chunks of the shard are the planes along the first axis, and the index follows the cells.
// If the field has fewer axes, the file is a plain chunk. The folder of a field contains a Zarr array with the shape
// (time, *shape). The names of the files contain dots. If the names contained "/" instead of dots, each state would
// need new folders, and each new folder would have to be flushed.
//
// The manifest is a text file. A commit replaces the manifest by a rename. So a reader always finds a complete
// manifest: the manifest of the last commit, or the manifest of the commit before the last commit.
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

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace outcrop {

/// A field of a state: its name and the number of cells along each axis.
struct StateField {
  std::string name;
  std::vector<std::uint64_t> shape;
};

class StateLayout {
 public:
  /// Throws InputError for names, shapes or a dtype that a trajectory cannot have.
  StateLayout(std::vector<StateField> fields, std::string dtype);

  std::size_t count() const { return fields_.size(); }
  const std::vector<StateField> &fields() const { return fields_; }
  const std::string &dtype() const { return dtype_; }

  /// the number of bytes of a field's cells
  std::size_t cell_bytes(std::size_t field) const { return cells_[field]; }
  /// the offset in a buffer at which the field's cells begin
  std::size_t offset(std::size_t field) const { return offsets_[field]; }
  std::uint64_t state_bytes() const { return state_bytes_; }  ///< the number of bytes of the cells of all fields
  std::size_t buffer_bytes() const { return buffer_bytes_; }
  /// the number of bytes of a state's files, rounded up to blocks of a file system
  std::uint64_t stored_bytes() const { return stored_bytes_; }
  /// Returns the index that follows the cells in the file. Each call makes the index anew. An index is not made when a
  /// manifest is read, because a short manifest can describe fields with long indices.
  std::string index(std::size_t field) const;
  std::uint64_t file_bytes(std::size_t field) const;

  /// Returns the name of the file of a field in a state, relative to the directory.
  std::string file_name(std::size_t field, std::uint64_t state) const;

  /// array_metadata() returns the content of zarr.json for the array of a field. group_metadata() returns the content
  /// of zarr.json for the group. The array has `states` states.
  std::string array_metadata(std::size_t field, std::uint64_t states) const;
  std::string group_metadata(std::uint64_t states) const;

 private:
  std::vector<std::string> axes(std::size_t field) const;

  std::vector<StateField> fields_;
  std::string dtype_;
  bool same_shapes_ = true;
  std::vector<std::size_t> cells_, offsets_;
  std::uint64_t state_bytes_ = 0, stored_bytes_ = 0;
  std::size_t buffer_bytes_ = 0;
};

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
  std::vector<std::uint32_t> sums;  ///< index: [committed state][field]

  std::uint64_t committed() const { return sums.size() / fields.size(); }

  /// Returns true if the states in memory also have files. If they have files, a commit writes the states in memory to
  /// these files.
  bool all_have_files() const;

  std::string to_text() const;

  /// Reads a manifest. Messages contain `label`, the path of the file. Throws CorruptionError if the text is damaged or
  /// was not written by Outcrop. Throws InputError if the manifest has another format.
  static TrajectoryManifest parse(const std::string &text, const std::string &label);
};

/// Returns the text of the MEMBER file of a further directory. The MEMBER file proves that the directory belongs to the
/// trajectory.
std::string member_text(const std::string &identity, std::size_t place);

/// Returns the number as 8 hexadecimal digits.
std::string hex(std::uint32_t number);

}  // namespace outcrop
