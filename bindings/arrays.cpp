// This file converts three kinds of objects between Python and the core: mapped files, aligned memory, and slots of
// arrays on tiers. The file has no other logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "outcrop/base/aligned.hpp"
#include "outcrop/exec/slot_file.hpp"
#include "outcrop/exec/topology.hpp"
#include "outcrop/storage/file.hpp"
#include "outcrop/storage/mapping.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using ConstBytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
using Contiguous = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Returns an array that refers to the bytes of a mapping. The mapping stays valid until Python has freed all arrays
// that refer to it.
nb::object bytes_of(nb::handle self) {
  const Mapping &mapping = nb::cast<const Mapping &>(self);
  if (mapping.writable()) return nb::cast(Bytes(mapping.data(), {mapping.size()}, self));
  return nb::cast(ConstBytes(mapping.data(), {mapping.size()}, self));
}

// Returns an array that owns `memory`. Python frees the memory together with the array.
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

// Converts bytes of a commit to numbers. The numbers are checksums of 4 bytes, in the byte order of the machine, or
// slots of one byte.
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

void bind_arrays(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  module.def("memory_on_nodes", &memory_on_nodes, nb::arg("nbytes"), nb::arg("nodes"),
             "Return zeroed bytes from these NUMA nodes. Raises InputError if the system does not allow that.");
  module.def(
      "aligned_array", &aligned_array, nb::arg("nbytes"),
      "Return zeroed bytes, aligned for direct I/O, in huge pages if possible. A page becomes resident when touched.");

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
          "Map a new unnamed file in `folder`, which is deleted with the mapping. All its bytes are allocated. Raises "
          "StorageError.")
      .def_prop_ro("bytes", &bytes_of, "All bytes. They are writable if the file was opened for writing.")
      .def_prop_ro("is_synchronous", &Mapping::synchronous, "True if a cache line is durable once it is written back.")
      .def("flush", &flush_in_parallel, nb::arg("begin"), nb::arg("nbytes"), nb::arg("threads"), unlocked,
           "Make these bytes as durable as the file system can.");

  nb::class_<SlotFile>(module, "SlotFile", "The committed tiles of an array on storage.")
      .def(nb::init<const std::string &, std::uint64_t, std::size_t, bool, unsigned>(), nb::arg("path"),
           nb::arg("array_bytes"), nb::arg("tile_bytes"), nb::arg("writable"), nb::arg("threads"), unlocked,
           "Open an existing file with room for one or two slots for each tile. Raises StorageError.")
      .def_static("stride_bytes", &SlotFile::stride_bytes, nb::arg("array_bytes"),
                  "Return the bytes of one slot for each tile.")
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
          "The checksums of all tiles as last written, 4 bytes each.")
      .def_prop_ro(
          "slots", [](const SlotFile &file) { return content(file.written().slots); },
          "The slots of all tiles as last written, one byte each.")
      .def("accept", &SlotFile::accept, "Make the tiles as last written the last commit.");
}

}  // namespace outcrop
