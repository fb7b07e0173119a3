#include "outcrop/trajectory/layout.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
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
  const char *fill;  // the fill value of the Zarr array, as JSON
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
  throw InputError("dtype ", dtype, " is not supported; there are ", names);
}

bool is_name(const std::string &name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= max_name && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

void append(std::string &bytes, std::uint64_t number, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
}

// Returns the number of bytes of the index of a shard, which has 16 bytes for each plane and a checksum.
std::uint64_t index_bytes(const std::vector<std::uint64_t> &shape) {
  return shape.size() < 3 ? 0 : 16 * shape[0] + sizeof(std::uint32_t);
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
    throw InputError("a state has 1 to ", max_fields, " fields, not ", fields_.size());
  std::set<std::string> names;
  for (const StateField &field : fields_) {
    if (!is_name(field.name))
      throw InputError("a field needs a name of at most 64 letters, digits and _ that does not begin with a digit");
    if (!names.insert(field.name).second) throw InputError("field ", field.name, " is given twice");
    if (field.shape.size() > max_axes)
      throw InputError("field ", field.name, " has ", field.shape.size(), " axes; at most ", max_axes, " are possible");
    std::uint64_t bytes = cell;
    for (const std::uint64_t size : field.shape) {
      if (size == 0) throw InputError("field ", field.name, " has an axis without cells; sizes are at least 1");
      if (size > max_bytes / bytes) throw InputError("field ", field.name, " is larger than a file may be");
      bytes *= size;
    }
    if (field.shape.size() >= 3 && field.shape[0] > max_planes)
      throw InputError("field ", field.name, " has too many planes");
    cells_.push_back(bytes);
    offsets_.push_back(buffer_bytes_);
    buffer_bytes_ += round_up(bytes, AlignedMemory::page_bytes);
    state_bytes_ += bytes;
    stored_bytes_ += round_up(bytes + index_bytes(field.shape), AlignedMemory::page_bytes);
    if (stored_bytes_ > max_bytes) throw InputError("a state of these fields is larger than a file may be");
    same_shapes_ = same_shapes_ && field.shape == fields_[0].shape;
  }
}

// The inner chunks of a shard are planes. The index of a shard first has a pair (offset, length) for each plane, then
// the CRC32C of all pairs. The index has the same format as the index of a snapshot (src/outcrop/run/disk/layout.py).
std::string StateLayout::index(std::size_t field) const {
  const std::vector<std::uint64_t> &shape = fields_[field].shape;
  std::string index;
  if (shape.size() < 3) return index;
  index.reserve(index_bytes(shape));
  const std::uint64_t plane_bytes = cells_[field] / shape[0];
  for (std::uint64_t plane = 0; plane < shape[0]; ++plane) {
    append(index, plane * plane_bytes, 8);
    append(index, plane_bytes, 8);
  }
  append(index, crc32c(std::as_bytes(std::span(index))), 4);
  return index;
}

std::uint64_t StateLayout::file_bytes(std::size_t field) const {
  return cells_[field] + index_bytes(fields_[field].shape);
}

std::string StateLayout::file_name(std::size_t field, std::uint64_t state) const {
  std::string name = fields_[field].name + "/c." + std::to_string(state);
  for (std::size_t axis = 0; axis < fields_[field].shape.size(); ++axis) name += ".0";
  return name;
}

// Names the axes z, y and x. Programs such as xarray require that all axes with the same name have the same size. So if
// the shapes of fields differ, the name of an axis contains the name of the field.
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

// --- the manifest ---------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view first_line = "outcrop trajectory 1";
constexpr std::uint64_t max_states = std::uint64_t{1} << 30;
constexpr std::size_t max_places = 256, max_path = 4096, identity_digits = 32;

std::string with_sum(const std::string &text) {
  return text_from(text, "crc32c ", hex(crc32c(std::as_bytes(std::span(text)))), "\n");
}

// The part of a text that has not been read yet. If the text is invalid, the functions of this class throw a string
// that contains the reason.
class Unread {
 public:
  explicit Unread(std::string_view text) : text_(text) {}

  bool empty() const { return text_.empty(); }
  std::string_view text() const { return text_; }
  bool begins_with(std::string_view key) const { return text_.starts_with(key); }

  // Reads a line that begins with `key`. Returns the rest of the line.
  Unread line(std::string_view key) {
    if (!begins_with(key)) throw "a line is missing";
    return Unread(up_to('\n').substr(key.size()));
  }

  std::string_view word() {
    const std::string_view found = up_to(' ');
    if (found.empty()) throw "a word is missing";
    return found;
  }

  std::uint64_t number(std::uint64_t most, int base = 10) {
    const std::string_view digits = word();
    std::uint64_t found = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), found, base);
    if (error != std::errc{} || end != digits.data() + digits.size() || found > most) throw "a number is wrong";
    return found;
  }

 private:
  // Reads the text up to the next separator, or the whole text. Skips the separator.
  std::string_view up_to(char separator) {
    const std::string_view found = text_.substr(0, text_.find(separator));
    text_.remove_prefix(std::min(found.size() + 1, text_.size()));
    return found;
  }

  std::string_view text_;
};

bool is_identity(std::string_view text) {
  return text.size() == identity_digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_path(std::string_view text) {
  return !text.empty() && text.size() <= max_path &&
         std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F; });
}

// Reads a manifest. The caller has checked that `text` ends with a newline, and that its checksum is right.
TrajectoryManifest read(std::string_view text) {
  Unread lines(text);
  TrajectoryManifest found;
  lines.line("outcrop ");
  found.identity = lines.line("identity ").text();
  if (!is_identity(found.identity)) throw "the identity is wrong";
  found.dtype = lines.line("dtype ").text();
  while (lines.begins_with("field ")) {
    Unread words = lines.line("field ");
    StateField field{std::string(words.word()), {}};
    while (!words.empty()) field.shape.push_back(words.number(UINT64_MAX));
    found.fields.push_back(std::move(field));
  }
  if (found.fields.empty()) throw "there are no fields";
  found.states = lines.line("states ").number(max_states);
  found.memory_states = lines.line("memory ").number(found.states);
  std::uint64_t with_files = 0;
  while (lines.begins_with("place ")) {
    Unread words = lines.line("place ");
    const std::uint64_t states = words.number(max_states);
    if (!is_path(words.text()) || found.places.size() == max_places) throw "a path is wrong";
    found.places.push_back({std::string(words.text()), states});
    with_files += states;
  }
  if (found.places.empty()) throw "there are no places";
  if (with_files != found.states && with_files != found.states - found.memory_states) throw "states have no place";
  while (lines.begins_with("state ")) {
    Unread words = lines.line("state ");
    for (std::size_t field = 0; field < found.fields.size(); ++field)
      found.sums.push_back(static_cast<std::uint32_t>(words.number(UINT32_MAX, 16)));
    if (!words.empty()) throw "a state has too many checksums";
  }
  if (!lines.empty()) throw "there are unknown lines";
  if (found.committed() > found.states) throw "there are too many states";
  if (found.committed() > 0 && found.memory_states > 0 && !found.all_have_files()) throw "states have no file";
  return found;
}

}  // namespace

bool TrajectoryManifest::all_have_files() const {
  std::uint64_t with_files = 0;
  for (const Place &place : places) with_files += place.states;
  return with_files >= states;
}

std::string TrajectoryManifest::to_text() const {
  std::string text = text_from(first_line, "\nidentity ", identity, "\ndtype ", dtype);
  for (const StateField &field : fields) {
    text += "\nfield " + field.name;
    for (const std::uint64_t size : field.shape) text += text_from(" ", size);
  }
  text += text_from("\nstates ", states, "\nmemory ", memory_states);
  for (const Place &place : places) text += text_from("\nplace ", place.states, " ", place.path);
  for (std::size_t i = 0; i < sums.size(); ++i) text += (i % fields.size() == 0 ? "\nstate " : " ") + hex(sums[i]);
  return with_sum(text + "\n");
}

TrajectoryManifest TrajectoryManifest::parse(const std::string &text, const std::string &label) {
  constexpr std::string_view beginning = "outcrop trajectory ";
  if (!text.starts_with(beginning)) throw CorruptionError(label, " is damaged or not written by Outcrop");
  const std::size_t last = text.rfind("crc32c ");
  if (last == std::string::npos || with_sum(text.substr(0, last)) != text)
    throw CorruptionError(label, " is damaged: checksum mismatch");
  if (text.substr(0, text.find('\n')) != first_line)
    throw InputError(label, " is of another format; this version of Outcrop reads \"", first_line, "\"");
  try {
    return read(std::string_view(text).substr(0, last));
  } catch (const char *problem) {
    throw CorruptionError(label, " is damaged: ", problem);
  }
}

std::string member_text(const std::string &identity, std::size_t place) {
  return with_sum(text_from("outcrop trajectory member 1\nidentity ", identity, "\nplace ", place, "\n"));
}

std::string hex(std::uint32_t number) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned>(number));
  return text.data();
}

}  // namespace outcrop
