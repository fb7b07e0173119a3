// This file converts objects of storage between Python and the core: files, stores, links, trajectories, mapped files,
// aligned memory, and slots of arrays on tiers.
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
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/exec/slot_file.hpp"
#include "outcrop/exec/topology.hpp"
#include "outcrop/storage/checksums.hpp"
#include "outcrop/storage/file.hpp"
#include "outcrop/storage/link.hpp"
#include "outcrop/storage/mapping.hpp"
#include "outcrop/storage/store.hpp"
#include "outcrop/trajectory/trajectory.hpp"
#include "shared.hpp"

namespace nb = nanobind;

namespace outcrop {

namespace {

// --- stores and links -----------------------------------------------------------------------------------------------

using NamedFaults = std::map<std::string, double>;

// Converts pairs of a name and a value to the faults that a store simulates. Tests use these faults.
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

// A Python value that names a file has one of three forms. A path without more values means a whole file. The tuple
// (path, first byte, number of bytes) means a part of a file. The tuple (descriptor of a folder, path in the folder,
// label) means a file in a folder.
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

// --- trajectories ---------------------------------------------------------------------------------------------------

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

// Holds the Python arrays of one state of a trajectory, and the addresses of their bytes. Each field has one array.
// Raises InputError if the number of arrays or the size of an array differs from the layout of the trajectory.
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

// Removes the newest state of a trajectory. Returns the number of the removed state, and one array for each field. The
// returned arrays refer to the memory of the trajectory. The trajectory's memory exists at least as long as the
// returned arrays.
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

NamedShapes fields_of(const Trajectory &trajectory) {
  NamedShapes found;
  for (const StateField &field : trajectory.layout().fields()) found.emplace_back(field.name, field.shape);
  return found;
}

// --- memory, mapped files and slots of arrays -----------------------------------------------------------------------

using ConstBytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
using Contiguous = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Returns an array that refers to the bytes of a mapping. The mapping stays valid as long as one array refers to it.
nb::object bytes_of(nb::handle self) {
  const Mapping &mapping = nb::cast<const Mapping &>(self);
  if (mapping.writable()) return nb::cast(Bytes(mapping.data(), {mapping.size()}, self));
  return nb::cast(ConstBytes(mapping.data(), {mapping.size()}, self));
}

// Returns an array that owns `memory`. Python frees the memory when it destroys the array.
Bytes array_of(std::unique_ptr<AlignedMemory> memory) {
  std::byte *data = memory->data();
  const std::size_t size = memory->size();
  const nb::capsule owner(memory.release(), [](void *taken) noexcept { delete static_cast<AlignedMemory *>(taken); });
  return {data, {size}, owner};
}

Bytes aligned_array(std::size_t nbytes) { return array_of(std::make_unique<AlignedMemory>(nbytes)); }

Bytes memory_on_nodes(std::size_t nbytes, const std::vector<unsigned> &nodes) {
  auto memory = std::make_unique<AlignedMemory>(nbytes);
  if (!bind_memory(memory->data(), nbytes, nodes))
    throw InputError("the system refuses to bind memory to NUMA node ", nodes.at(0));
  return array_of(std::move(memory));
}

// Converts the bytes of one list of a commit to numbers. A commit has two lists: the checksums (4 bytes each, in the
// byte order of the machine), and the slots (1 byte each).
template <typename Number>
std::vector<Number> numbers(const nb::bytes &content) {
  std::vector<Number> result(content.size() / sizeof(Number));
  std::memcpy(result.data(), content.c_str(), result.size() * sizeof(Number));
  return result;
}

template <typename Number>
nb::bytes content(const std::vector<Number> &values) {
  return nb::bytes(values.data(), values.size() * sizeof(Number));
}

using Damage = std::vector<std::tuple<std::size_t, std::uint64_t, int>>;

Damage load(SlotFile &file, const nb::bytes &checksums, const nb::bytes &slots, std::byte *memory) {
  const CommittedTiles commit{numbers<std::uint32_t>(checksums), numbers<std::uint8_t>(slots)};
  nb::gil_scoped_release release;
  Damage result;
  for (const DamagedTile &one : file.load(commit, memory)) result.emplace_back(one.tile, one.offset, one.error);
  return result;
}

}  // namespace

// --- the module -----------------------------------------------------------------------------------------------------

void bind_storage(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  module.def(
      "crc32c", &crc32c_of, nb::arg("data"), nb::arg("crc") = 0,
      "Return the CRC32C of `data`. If `crc` is the checksum of earlier bytes, return the CRC32C of all these bytes.");
  module.def("plane_seal", &plane_seal, nb::arg("z"), nb::arg("crc"), nb::arg("seed"),
             "Return the seal of plane z with the checksum `crc` (storage/checksums.hpp).");
  module.def("plane_damage", &plane_damage, nb::arg("z"), nb::arg("is_whole"), nb::arg("path"), nb::arg("offset"),
             nb::arg("plane_bytes"),
             "Return the error message for a damaged plane. If `is_whole`, only the seal of the plane is wrong.");
  module.def("probe", &probe,
             "Test each backend. Return the reasons why backends do not work; a reason is empty if the backend works.");
  module.def("create_file", &File::create, nb::arg("path"), nb::arg("size"), unlocked,
             "Create or replace a file, and allocate its `size` bytes. Raises StorageError.");
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
           "Fill a contiguous array from the file with this number. No executor may run. Raises StorageError.")
      .def("write_from", &write_from, nb::arg("file"), nb::arg("offset"), nb::arg("array"),
           "Write a contiguous array to the file with this number. No executor may run. Raises StorageError.")
      .def("replace", &replace_file, nb::arg("file"), nb::arg("name"),
           "Close the file with this number, and open another file for reading with the same number. No executor may "
           "run. Raises StorageError.")
      .def("flush", &Store::flush, unlocked, "Wait until all written bytes are on the device. Raises StorageError.")
      .def("close", &Store::close, unlocked, "Close the files. Later transfers raise StorageError.")
      .def_prop_ro("name", &Store::name, "The name of the backend.")
      .def_prop_ro("direct", &Store::direct, "True if all files bypass the page cache.")
      .def_prop_ro("alignment", &Store::alignment,
                   "The alignment of direct transfers in bytes; without direct transfers, 1.")
      .def_prop_ro("note", &Store::note, "The reason why another backend or mode would be preferred, or an empty text.")
      .def_prop_ro("paths", &paths,
                   "The paths or labels of the files, by number. Labels of parts include the first byte.");
  nb::class_<Link>(module, "Link", "The connection to a neighbour (storage/link.hpp).")
      .def(nb::init<int, const std::string &>(), nb::arg("fd"), nb::arg("name"),
           "Duplicate the descriptor of a connected stream socket. Error messages name the neighbour `name`. "
           "Raises InputError.")
      .def("send", &send, nb::arg("data"), "Send one message. Raises CommunicationError, or InterruptedRun.")
      .def("receive", &receive, nb::arg("array"),
           "Fill a contiguous array from one message of this length. Raises CommunicationError, CorruptionError, or "
           "InterruptedRun.")
      .def("cancel", &Link::cancel, "Close the connection. Calls in other threads raise InterruptedRun soon.")
      .def_prop_ro("name", &Link::name, "The name of the neighbour.")
      .def_prop_ro("bytes_sent", &Link::bytes_sent, "The bytes of all complete messages, without checksums.")
      .def_prop_ro("bytes_received", &Link::bytes_received, "The bytes of all complete messages, without checksums.");
  nb::class_<Trajectory>(module, "StateStack", "The states of a trajectory (trajectory/trajectory.hpp).")
      .def_static("create", &create_trajectory, nb::arg("fields"), nb::arg("dtype"), nb::arg("states"),
                  nb::arg("memory_bytes"), nb::arg("directories"), nb::arg("buffers") = 3, nb::arg("io") = "auto",
                  nb::arg("faults") = NamedFaults(),
                  "Make a trajectory. `fields` lists pairs (name, shape). `directories` lists pairs (path, limit in "
                  "bytes or 0). Raises InputError, StorageError.")
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

  module.def("memory_on_nodes", &memory_on_nodes, nb::arg("nbytes"), nb::arg("nodes"),
             "Return zeroed memory from these NUMA nodes. Raises InputError if the system does not allow that.");
  module.def(
      "aligned_array", &aligned_array, nb::arg("nbytes"),
      "Return zeroed memory that is aligned for direct I/O, in huge pages if possible. The first access to a page "
      "allocates the page.");

  nb::class_<Mapping>(module, "MappedFile", "A file that is mapped into memory.")
      .def_static(
          "file",
          [](const std::string &path, bool writable) { return Mapping(File::open(path, writable, false), true); },
          nb::arg("path"), nb::arg("writable"), unlocked, "Map a whole existing file. Raises StorageError.")
      .def_static(
          "scratch",
          [](const std::string &folder, std::uint64_t size, bool tries_sync) {
            return Mapping(File::unnamed(folder, size), tries_sync);
          },
          nb::arg("folder"), nb::arg("nbytes"), nb::arg("tries_sync") = false, unlocked,
          "Map a new unnamed file in `folder`, and allocate all its bytes. The end of the mapping deletes the file. "
          "Raises StorageError.")
      .def_prop_ro("bytes", &bytes_of, "All bytes. They are writable if the file was opened for writing.")
      .def_prop_ro("is_synchronous", &Mapping::synchronous, "True if each cache line is durable after its write-back.")
      .def("flush", &flush_in_parallel, nb::arg("begin"), nb::arg("nbytes"), nb::arg("threads"), unlocked,
           "Flush these bytes to the device, if the file system can do this.");

  nb::class_<SlotFile>(module, "SlotFile", "The committed tiles of an array on storage.")
      .def(nb::init<const std::string &, std::uint64_t, std::size_t, bool, unsigned>(), nb::arg("path"),
           nb::arg("array_bytes"), nb::arg("tile_bytes"), nb::arg("writable"), nb::arg("threads"), unlocked,
           "Open an existing file with room for one or two slots for each tile. Raises StorageError.")
      .def_static("stride_bytes", &SlotFile::stride_bytes, nb::arg("array_bytes"),
                  "Return the number of bytes of one slot for each tile.")
      .def_prop_ro("primitive", &SlotFile::primitive, "The system operation that makes a commit durable.")
      .def(
          "load",
          [](SlotFile &file, const nb::bytes &checksums, const nb::bytes &slots, const Contiguous &memory) {
            return load(file, checksums, slots, reinterpret_cast<std::byte *>(memory.data()));
          },
          nb::arg("checksums"), nb::arg("slots"), nb::arg("memory"),
          "Read a commit into memory. Returns (tile, offset, error number or 0) for each damaged tile.")
      .def(
          "verify",
          [](SlotFile &file, const nb::bytes &checksums, const nb::bytes &slots) {
            return load(file, checksums, slots, nullptr);
          },
          nb::arg("checksums"), nb::arg("slots"), "Like load(), but does not keep the bytes.")
      .def("map", &SlotFile::map, unlocked, "Map the commit that was last loaded or verified, for reading.")
      .def(
          "write_changed",
          [](SlotFile &file, const Contiguous &memory) {
            return file.write_changed(reinterpret_cast<const std::byte *>(memory.data()));
          },
          nb::arg("memory"), unlocked,
          "Write the tiles that have changed since the last commit and make them durable. Returns the number of bytes.")
      .def_prop_ro(
          "checksums", [](const SlotFile &file) { return content(file.written().checksums); },
          "The checksums of the last written version of all tiles, 4 bytes each.")
      .def_prop_ro(
          "slots", [](const SlotFile &file) { return content(file.written().slots); },
          "The slots of the last written version of all tiles, one byte each.")
      .def("accept", &SlotFile::accept, "Make the last written version of all tiles the last commit.");
}

}  // namespace outcrop
