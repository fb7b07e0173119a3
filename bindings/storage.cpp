// This file converts files, buffers, names and trajectories between Python and the core. The file has no other logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <fcntl.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/storage/checksums.hpp"
#include "outcrop/storage/file.hpp"
#include "outcrop/storage/link.hpp"
#include "outcrop/storage/store.hpp"
#include "outcrop/trajectory/trajectory.hpp"
#include "shared.hpp"

namespace nb = nanobind;

namespace outcrop {

namespace {

using NamedFaults = std::map<std::string, double>;

// Converts names and values to the faults that a store simulates. Tests use these faults to simulate errors of storage.
Faults to_faults(const NamedFaults &values) {
  Faults faults;
  const std::map<std::string, double Faults::*> rates{{"error_rate", &Faults::error_rate},
                                                      {"again_rate", &Faults::again_rate},
                                                      {"short_rate", &Faults::short_rate},
                                                      {"flip_rate", &Faults::flip_rate}};
  const std::map<std::string, std::uint64_t Faults::*> counts{{"seed", &Faults::seed},
                                                              {"full_after_bytes", &Faults::full_after_bytes},
                                                              {"error_at", &Faults::error_at},
                                                              {"flip_at", &Faults::flip_at},
                                                              {"flush_error_at", &Faults::flush_error_at},
                                                              {"latency_microseconds", &Faults::latency_microseconds}};
  for (const auto &[name, value] : values) {
    if (const auto found = rates.find(name); found != rates.end()) {
      if (!(value >= 0 && value <= 1)) throw InputError(name, " must be between 0 and 1");
      faults.*(found->second) = value;
    } else if (const auto number = counts.find(name); number != counts.end() && value >= 0 && value < 0x1p53) {
      faults.*(number->second) = static_cast<std::uint64_t>(value);
    } else {
      throw InputError("no such fault: ", name, " = ", value);
    }
  }
  return faults;
}

std::uint32_t crc32c_of(nb::handle data, std::uint32_t crc) {
  const Buffer buffer(data, false);
  nb::gil_scoped_release release;
  return crc32c({buffer.data(), buffer.size()}, crc);
}

nb::dict probe() {
  std::vector<Probe> found;
  {
    nb::gil_scoped_release release;
    found = probe_backends();
  }
  nb::dict result;
  for (const Probe &one : found) result[one.name.c_str()] = one.reason;
  return result;
}

// A Python value that names a file has one of three forms. A path alone means a whole file. The tuple (path, first
// byte, number of bytes) means a part of a file. The tuple (descriptor of a folder, path in the folder, label) means a
// file in a folder.
using Part = std::tuple<std::string, std::uint64_t, std::uint64_t>;
using Inside = std::tuple<int, std::string, std::string>;
using FileName = std::variant<std::string, Part, Inside>;

FileSpec to_spec(const FileName &name, bool writable) {
  if (const auto *path = std::get_if<std::string>(&name)) return {.path = *path, .writable = writable};
  if (const auto *inside = std::get_if<Inside>(&name)) {
    const auto &[folder, path, label] = *inside;
    if (folder < 0) throw InputError(label, " needs the descriptor of its folder, not ", folder);
    return {.path = path, .writable = writable, .folder = folder, .label = label};
  }
  const auto &[path, begin, size] = std::get<Part>(name);
  if (size == 0) throw InputError("a part of ", path, " must have at least one byte");
  return {.path = path, .writable = writable, .begin = begin, .size = size};
}

std::unique_ptr<Store> make_store(const std::vector<FileName> &names, const std::string &backend, bool direct,
                                  bool writable, const NamedFaults &faults, std::size_t depth, std::size_t scratch) {
  std::vector<FileSpec> files;
  for (const FileName &name : names) files.push_back(to_spec(name, writable));
  for (std::size_t i = 0; i < scratch && i < files.size(); ++i) files[files.size() - 1 - i].scratch = true;
  StoreOptions options;
  options.direct = direct;
  options.depth = depth;
  options.faults = to_faults(faults);
  nb::gil_scoped_release release;
  return open_store(backend, files, options);
}

void read_into(Store &store, std::uint32_t file, std::uint64_t offset, nb::handle array) {
  const Buffer buffer(array, true);
  nb::gil_scoped_release release;
  store.read(file, offset, buffer.data(), buffer.size());
}

void write_from(Store &store, std::uint32_t file, std::uint64_t offset, nb::handle array) {
  const Buffer buffer(array, false);
  nb::gil_scoped_release release;
  store.write(file, offset, buffer.data(), buffer.size());
}

void replace_file(Store &store, std::uint32_t file, const FileName &name) {
  const FileSpec spec = to_spec(name, false);
  nb::gil_scoped_release release;
  store.replace(file, File::open(spec.path, false, store.files().at(file).direct(), spec.folder, spec.label));
}

std::vector<std::string> paths(const Store &store) {
  std::vector<std::string> result;
  for (const File &file : store.files()) result.push_back(file.path());
  return result;
}

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using NamedShapes = std::vector<std::tuple<std::string, std::vector<std::uint64_t>>>;
using Limits = std::vector<std::tuple<std::string, std::uint64_t>>;

std::unique_ptr<Trajectory> create_trajectory(const NamedShapes &fields, const std::string &dtype, std::uint64_t states,
                                              std::uint64_t memory_bytes, const Limits &directories,
                                              std::size_t buffers, const std::string &io, const NamedFaults &faults) {
  std::vector<StateField> named;
  for (const auto &[name, shape] : fields) named.push_back({name, shape});
  std::vector<DirectoryLimit> limits;
  for (const auto &[path, bytes] : directories) limits.push_back({path, bytes});
  const TrajectoryOptions options{buffers, io, to_faults(faults)};
  nb::gil_scoped_release release;
  return Trajectory::create({std::move(named), dtype}, states, memory_bytes, limits, options);
}

std::unique_ptr<Trajectory> open_trajectory(const std::string &path, std::size_t buffers, const std::string &io,
                                            const NamedFaults &faults) {
  const TrajectoryOptions options{buffers, io, to_faults(faults)};
  nb::gil_scoped_release release;
  return Trajectory::open(path, options);
}

// Gives access to the bytes of a trajectory's state: one Python array for each field, and the addresses of these
// arrays. Raises InputError if the number of arrays or the size of an array does not match the trajectory's layout.
struct StateArrays {
  StateArrays(const Trajectory &trajectory, const nb::list &arrays, bool writable) {
    const StateLayout &layout = trajectory.layout();
    if (arrays.size() != layout.count()) throw InputError("a state needs an array for each field");
    for (std::size_t field = 0; field < layout.count(); ++field) {
      const Buffer &buffer = buffers.emplace_back(arrays[field], writable);
      if (buffer.size() != layout.cell_bytes(field))
        throw InputError("field ", layout.fields()[field].name, " has ", layout.cell_bytes(field), " bytes, not ",
                         buffer.size());
      cells.push_back(buffer.data());
    }
  }

  std::deque<Buffer> buffers;
  std::vector<std::byte *> cells;
};

std::uint64_t push(Trajectory &trajectory, const nb::list &arrays) {
  const StateArrays state(trajectory, arrays, false);
  nb::gil_scoped_release release;
  return trajectory.push(state.cells);
}

// Removes the newest state of a trajectory. Returns the number of this state and the bytes of each field. The
// trajectory's memory exists at least as long as the returned arrays.
nb::tuple pop(nb::handle self) {
  Trajectory &trajectory = nb::cast<Trajectory &>(self);
  Trajectory::Popped popped;
  {
    nb::gil_scoped_release release;
    popped = trajectory.pop();
  }
  nb::list fields;
  for (std::size_t field = 0; field < trajectory.layout().count(); ++field)
    fields.append(
        Bytes(popped.data + trajectory.layout().offset(field), {trajectory.layout().cell_bytes(field)}, self));
  return nb::make_tuple(popped.state, fields);
}

void read(Trajectory &trajectory, std::uint64_t number, const nb::list &arrays) {
  const StateArrays state(trajectory, arrays, true);
  nb::gil_scoped_release release;
  trajectory.read(number, state.cells);
}

void send(Link &link, nb::handle bytes) {
  const Buffer buffer(bytes, false);
  nb::gil_scoped_release release;
  link.send({buffer.data(), buffer.size()});
}

void receive(Link &link, nb::handle array) {
  const Buffer buffer(array, true);
  nb::gil_scoped_release release;
  link.receive({buffer.data(), buffer.size()});
}

NamedShapes fields_of(const Trajectory &trajectory) {
  NamedShapes found;
  for (const StateField &field : trajectory.layout().fields()) found.emplace_back(field.name, field.shape);
  return found;
}

}  // namespace

void bind_storage(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  module.def(
      "crc32c", &crc32c_of, nb::arg("data"), nb::arg("crc") = 0,
      "Return the CRC32C of `data`. If `crc` is the checksum of earlier bytes, return the CRC32C of all these bytes.");
  module.def("plane_seal", &plane_seal, nb::arg("z"), nb::arg("crc"), nb::arg("seed"),
             "Return the seal of plane z with the checksum `crc`, see storage/checksums.hpp.");
  module.def("plane_damage", &plane_damage, nb::arg("z"), nb::arg("is_whole"), nb::arg("path"), nb::arg("offset"),
             nb::arg("plane_bytes"),
             "Return the message about a damaged plane: its checksum is wrong or, if it `is_whole`, only its seal.");
  module.def("probe", &probe,
             "Return the reason why each backend does not work here. The reason is empty for a backend that works.");
  module.def("create_file", &File::create, nb::arg("path"), nb::arg("size"), unlocked,
             "Create or replace a file of `size` bytes, all of them allocated. Raises StorageError.");
  module.def(
      "open_beneath",
      [](int folder, const std::string &path, const std::string &label, bool writable) {
        return open_beneath(folder, path, writable ? O_RDWR : O_RDONLY, label).release();
      },
      nb::arg("folder"), nb::arg("path"), nb::arg("label"), nb::arg("writable") = false, unlocked,
      "Open a regular file beneath an open folder and return its descriptor. Follows no links. Raises StorageError.");
  nb::class_<Store>(module, "Store", "Open files, and a backend that moves bytes between them and memory.")
      .def(nb::new_(&make_store), nb::arg("files"), nb::arg("backend") = "auto", nb::arg("direct") = true,
           nb::arg("writable") = false, nb::arg("faults") = NamedFaults(), nb::arg("depth") = 64,
           nb::arg("scratch") = 0)
      .def("read_into", &read_into, nb::arg("file"), nb::arg("offset"), nb::arg("array"),
           "Fill a contiguous array from a file, given by number. Raises StorageError. Not while an executor runs.")
      .def("write_from", &write_from, nb::arg("file"), nb::arg("offset"), nb::arg("array"),
           "Write a contiguous array to a file, given by number. Raises StorageError. Not while an executor runs.")
      .def("replace", &replace_file, nb::arg("file"), nb::arg("name"),
           "Open another file for reading, under the number of an open file, which is closed. Raises StorageError. Not "
           "while an executor runs.")
      .def("flush", &Store::flush, unlocked, "Wait until all written bytes are on the device. Raises StorageError.")
      .def("close", &Store::close, unlocked, "Close the files. Later transfers raise StorageError.")
      .def_prop_ro("name", &Store::name, "The name of the backend.")
      .def_prop_ro("direct", &Store::direct, "True if all files bypass the page cache.")
      .def_prop_ro("alignment", &Store::alignment, "The alignment of direct transfers in bytes; 1 if there are none.")
      .def_prop_ro("note", &Store::note, "The reason why this is not the preferred backend or mode; empty if it is.")
      .def_prop_ro("paths", &paths, "The paths or labels of the files, by number. Parts include their first byte.");
  nb::class_<Link>(module, "Link", "The connection to a neighbour, see storage/link.hpp.")
      .def(nb::init<int, const std::string &>(), nb::arg("fd"), nb::arg("name"),
           "Duplicate the descriptor of a connected stream socket. `name` is the name of the neighbour in messages. "
           "Raises InputError.")
      .def("send", &send, nb::arg("data"), "Send one message. Raises CommunicationError, or InterruptedRun.")
      .def("receive", &receive, nb::arg("array"),
           "Fill a contiguous array from one message of this length. Raises CommunicationError, CorruptionError, or "
           "InterruptedRun.")
      .def("cancel", &Link::cancel, "Close the connection. Calls in other threads raise InterruptedRun soon.")
      .def_prop_ro("name", &Link::name, "The name of the neighbour.")
      .def_prop_ro("bytes_sent", &Link::bytes_sent, "The bytes of all complete messages, without checksums.")
      .def_prop_ro("bytes_received", &Link::bytes_received, "The bytes of all complete messages, without checksums.");
  nb::class_<Trajectory>(module, "StateStack", "The states of a trajectory, see trajectory/trajectory.hpp.")
      .def_static(
          "create", &create_trajectory, nb::arg("fields"), nb::arg("dtype"), nb::arg("states"), nb::arg("memory_bytes"),
          nb::arg("directories"), nb::arg("buffers") = 3, nb::arg("io") = "auto", nb::arg("faults") = NamedFaults(),
          "Make a trajectory. `fields` has (name, shape), `directories` has (path, limit in bytes or 0). Raises "
          "InputError, StorageError.")
      .def_static("open", &open_trajectory, nb::arg("path"), nb::arg("buffers") = 3, nb::arg("io") = "auto",
                  nb::arg("faults") = NamedFaults(),
                  "Open a trajectory. Raises InputError, StorageError, CorruptionError.")
      .def("push", &push, nb::arg("arrays"), "Copy a state, one contiguous array for each field. Returns its number.")
      .def("pop", &pop, "Remove the newest state. Returns its number and the bytes of each field.")
      .def("read", &read, nb::arg("state"), nb::arg("arrays"), "Copy a state into one array for each field.")
      .def("commit", &Trajectory::commit, unlocked, "Make the present states durable.")
      .def("close", &Trajectory::close, unlocked, "Close the files. Popped arrays stay valid.")
      .def("remove", &Trajectory::remove, unlocked, "Close the trajectory and delete its files.")
      .def_prop_ro("fields", &fields_of, "The name and the shape of each field.")
      .def_prop_ro(
          "dtype", [](const Trajectory &one) { return one.layout().dtype(); }, "The dtype of all fields.")
      .def_prop_ro(
          "path", [](const Trajectory &one) { return one.path(); }, "The first directory.")
      .def_prop_ro("states", &Trajectory::states, unlocked, "The number of present states.")
      .def_prop_ro("committed", &Trajectory::committed, unlocked, "The number of states of the last commit.")
      .def_prop_ro("max_states", &Trajectory::max_states, "The maximum number of states.")
      .def_prop_ro("memory_states", &Trajectory::memory_states, "The number of states that memory keeps.")
      .def_prop_ro("is_durable", &Trajectory::is_durable, "True if commit() is possible.");
}

}  // namespace outcrop
