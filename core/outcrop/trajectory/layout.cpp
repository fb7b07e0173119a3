#include "outcrop/trajectory/layout.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"

namespace outcrop {
namespace {

constexpr std::size_t max_fields = 1024, max_axes = 8, max_name = 64;
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 53, max_planes = std::uint64_t{1} << 28;

struct CellType {
  const char *name;
  std::size_t bytes;
  const char *fill;  // the value of cells that were never written, as JSON
};

constexpr std::array cell_types{
    CellType{"float32", 4, "0.0"},
    CellType{"float64", 8, "0.0"},  //
    CellType{"complex64", 8, "[0.0, 0.0]"},
    CellType{"complex128", 16, "[0.0, 0.0]"},  //
    CellType{"int32", 4, "0"},
    CellType{"int64", 8, "0"},  //
};

const CellType &cell_type(const std::string &dtype) {
  std::string names;
  for (const CellType &one : cell_types) {
    if (dtype == one.name) return one;
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  throw InputError("dtype " + dtype + " is not supported; there are " + names);
}

bool is_name(const std::string &name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= max_name && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

void append(std::string &bytes, std::uint64_t number, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
}

// Returns the index of a shard whose inner chunks are planes: (offset, length) of each plane, then the CRC32C of all
// entries. It is the index of a snapshot (src/outcrop/run/disk/layout.py).
std::string index_of(const std::vector<std::uint64_t> &shape, std::uint64_t cell_bytes) {
  if (shape.size() < 3) return "";
  std::string index;
  const std::uint64_t plane_bytes = cell_bytes / shape[0];
  for (std::uint64_t plane = 0; plane < shape[0]; ++plane) {
    append(index, plane * plane_bytes, 8);
    append(index, plane_bytes, 8);
  }
  append(index, crc32c(std::as_bytes(std::span(index))), 4);
  return index;
}

std::string list_of(const std::vector<std::uint64_t> &numbers) {
  std::string text;
  for (const std::uint64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

std::vector<std::uint64_t> with(std::uint64_t first, std::vector<std::uint64_t> numbers) {
  numbers.insert(numbers.begin(), first);
  return numbers;
}

}  // namespace

StateLayout::StateLayout(std::vector<StateField> fields, std::string dtype)
    : fields_(std::move(fields)), dtype_(std::move(dtype)) {
  const std::size_t cell = cell_type(dtype_).bytes;
  if (fields_.empty() || fields_.size() > max_fields)
    throw InputError("a state has 1 to " + std::to_string(max_fields) + " fields, not " +
                     std::to_string(fields_.size()));
  std::set<std::string> names;
  for (const StateField &field : fields_) {
    if (!is_name(field.name))
      throw InputError("a field needs a name of at most 64 letters, digits and _ that does not begin with a digit");
    if (!names.insert(field.name).second) throw InputError("field " + field.name + " is given twice");
    if (field.shape.size() > max_axes)
      throw InputError("field " + field.name + " has " + std::to_string(field.shape.size()) + " axes; at most " +
                       std::to_string(max_axes) + " are possible");
    std::uint64_t bytes = cell;
    for (const std::uint64_t size : field.shape) {
      if (size == 0) throw InputError("field " + field.name + " has an axis without cells; sizes are at least 1");
      if (size > max_bytes / bytes) throw InputError("field " + field.name + " is larger than files can be");
      bytes *= size;
    }
    if (field.shape.size() >= 3 && field.shape[0] > max_planes)
      throw InputError("field " + field.name + " has too many planes");
    cells_.push_back(bytes);
    indices_.push_back(index_of(field.shape, bytes));
    offsets_.push_back(buffer_bytes_);
    buffer_bytes_ += round_up(bytes, AlignedMemory::page_bytes);
    state_bytes_ += bytes;
    stored_bytes_ += round_up(bytes + indices_.back().size(), AlignedMemory::page_bytes);
    if (stored_bytes_ > max_bytes) throw InputError("a state of these fields is larger than files can be");
    same_shapes_ = same_shapes_ && field.shape == fields_[0].shape;
  }
}

std::string StateLayout::file_name(std::size_t field, std::uint64_t state) const {
  std::string name = fields_[field].name + "/c." + std::to_string(state);
  for (std::size_t axis = 0; axis < fields_[field].shape.size(); ++axis) name += ".0";
  return name;
}

// Names the axes z, y and x. Readers such as xarray need one size for each name, so the names contain the field if the
// shapes of fields differ.
std::vector<std::string> StateLayout::axes(std::size_t field) const {
  constexpr std::array<const char *, 3> usual{"z", "y", "x"};
  const std::size_t count = fields_[field].shape.size();
  const std::string prefix = same_shapes_ ? "" : fields_[field].name + "_";
  std::vector<std::string> names{"time"};
  for (std::size_t axis = 0; axis < count; ++axis)
    names.push_back(prefix + (count <= 3 ? usual[3 - count + axis] : "axis" + std::to_string(axis)));
  return names;
}

std::string StateLayout::array_metadata(std::size_t field, std::uint64_t states) const {
  const std::vector<std::uint64_t> &shape = fields_[field].shape;
  const std::string bytes = R"({"name": "bytes", "configuration": {"endian": "little"}})";
  std::string codecs = bytes;
  if (shape.size() >= 3) {
    std::vector<std::uint64_t> inner = with(1, shape);
    inner[1] = 1;
    codecs = R"({"name": "sharding_indexed", "configuration": {"chunk_shape": )" + list_of(inner) + R"(, "codecs": [)" +
             bytes + R"(], "index_codecs": [)" + bytes + R"(, {"name": "crc32c"}], "index_location": "end"}})";
  }
  std::string names;
  for (const std::string &name : axes(field)) names += (names.empty() ? "\"" : ", \"") + name + "\"";
  return R"({"zarr_format": 3, "node_type": "array", "shape": )" + list_of(with(states, shape)) +
         R"(, "data_type": ")" + dtype_ + R"(", "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": )" +
         list_of(with(1, shape)) +
         R"(}}, "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}, "fill_value": )" +
         cell_type(dtype_).fill + R"(, "codecs": [)" + codecs + R"(], "attributes": {}, "dimension_names": [)" + names +
         R"(], "storage_transformers": []})";
}

std::string StateLayout::group_metadata(std::uint64_t states) const {
  std::string arrays;
  for (std::size_t field = 0; field < count(); ++field)
    arrays += (field > 0 ? ", \"" : "\"") + fields_[field].name + "\": " + array_metadata(field, states);
  return R"({"zarr_format": 3, "node_type": "group", "attributes": {}, "consolidated_metadata": {"kind": "inline", )"
         R"("must_understand": false, "metadata": {)" +
         arrays + "}}}";
}

}  // namespace outcrop
