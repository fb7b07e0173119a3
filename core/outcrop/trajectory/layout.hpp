// The fields of a state, and how a state lies in memory and in files.
//
//     buffer:  | u, padding to pages | p, padding to pages |          one buffer holds one state
//     u/c.K.0.0.0:  | cells of u in state K, in C order | index |     one file for each state and field
//
// A file has the same content as a snapshot of a run. With three or more axes, the file is a shard of Zarr v3: its
// inner chunks are the planes of the first axis, and the index follows the cells. With fewer axes, the file is a plain
// chunk. The folder of a field is an array (time, *shape) of Zarr. Keys have dots instead of folders, because each
// folder would have to be made and flushed for each state.
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

  /// Returns the bytes of the cells of a field.
  std::size_t cell_bytes(std::size_t field) const { return cells_[field]; }
  /// Returns where the cells of a field begin in a buffer.
  std::size_t offset(std::size_t field) const { return offsets_[field]; }
  /// Returns the bytes of the cells of all fields.
  std::uint64_t state_bytes() const { return state_bytes_; }
  /// Returns the bytes of a buffer for a state.
  std::size_t buffer_bytes() const { return buffer_bytes_; }
  /// Returns the bytes that the files of a state take, in whole blocks of a file system.
  std::uint64_t stored_bytes() const { return stored_bytes_; }

  /// Returns the bytes that follow the cells in a file.
  const std::string &index(std::size_t field) const { return indices_[field]; }
  std::uint64_t file_bytes(std::size_t field) const { return cells_[field] + indices_[field].size(); }

  /// Returns the name of the file of a field in a state, relative to the directory.
  std::string file_name(std::size_t field, std::uint64_t state) const;

  /// Returns the content of zarr.json for the array of a field and for the group, if there are `states` states.
  std::string array_metadata(std::size_t field, std::uint64_t states) const;
  std::string group_metadata(std::uint64_t states) const;

 private:
  std::vector<std::string> axes(std::size_t field) const;

  std::vector<StateField> fields_;
  std::string dtype_;
  bool same_shapes_ = true;
  std::vector<std::size_t> cells_, offsets_;
  std::vector<std::string> indices_;
  std::uint64_t state_bytes_ = 0, stored_bytes_ = 0;
  std::size_t buffer_bytes_ = 0;
};

}  // namespace outcrop
