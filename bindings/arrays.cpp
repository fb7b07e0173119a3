// Conversion only: mapped files, memory on given NUMA nodes, and the slots of arrays on tiers.
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

// The mapping lives as long as any array that shows its bytes.
nb::object bytes_of(nb::handle self) {
  const Mapping &mapping = nb::cast<const Mapping &>(self);
  if (mapping.writable()) return nb::cast(Bytes(mapping.data(), {mapping.size()}, self));
  return nb::cast(ConstBytes(mapping.data(), {mapping.size()}, self));
}

Bytes memory_on_nodes(std::size_t nbytes, const std::vector<unsigned> &nodes) {
  auto memory = std::make_unique<AlignedMemory>(nbytes);
  const bool bound = nodes.size() == 1 ? bind_memory(memory->data(), nbytes, nodes[0])
                                       : interleave_memory(memory->data(), nbytes, nodes);
  if (!bound) throw InputError("the system refuses to bind memory to NUMA node " + std::to_string(nodes.at(0)));
  std::byte *data = memory->data();
  const nb::capsule owner(memory.release(), [](void *taken) noexcept { delete static_cast<AlignedMemory *>(taken); });
  return {data, {nbytes}, owner};
}

// Of a commit: checksums, 4 bytes each, little endian where the machine is, then slots, one byte each.
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
             "Zeroed bytes that come from those NUMA nodes. Raises InputError when the system does not allow that.");

  nb::class_<Mapping>(module, "MappedFile", "A file as memory.")
      .def_static(
          "file",
          [](const std::string &path, bool writable) { return Mapping(File::open(path, writable, false), true); },
          nb::arg("path"), nb::arg("writable"), unlocked, "The whole of an existing file. Raises StorageError.")
      .def_static(
          "scratch",
          [](const std::string &folder, std::uint64_t size, bool tries_sync) {
            return Mapping(File::unnamed(folder, size), tries_sync);
          },
          nb::arg("folder"), nb::arg("nbytes"), nb::arg("tries_sync") = false, unlocked,
          "A new file in `folder` that has no name and goes with the mapping, all of it allocated. Raises "
          "StorageError.")
      .def_prop_ro("bytes", &bytes_of, "All bytes; written only where the file was opened for that.")
      .def_prop_ro("is_synchronous", &Mapping::synchronous, "Whether cache lines written back are durable.")
      .def("flush", &flush_in_parallel, nb::arg("begin"), nb::arg("nbytes"), nb::arg("threads"), unlocked,
           "Returns when these bytes are as durable as the file system makes them.");

  nb::class_<SlotFile>(module, "SlotFile", "The committed tiles of an array on storage.")
      .def(nb::init<const std::string &, std::uint64_t, std::size_t, bool, unsigned>(), nb::arg("path"),
           nb::arg("array_bytes"), nb::arg("tile_bytes"), nb::arg("writable"), nb::arg("threads"), unlocked,
           "Open an existing file with room for one or two slots for each tile. Raises StorageError.")
      .def_static("stride_bytes", &SlotFile::stride_bytes, nb::arg("array_bytes"), "Bytes of one slot for every tile.")
      .def_prop_ro("primitive", &SlotFile::primitive, "What makes a commit durable.")
      .def(
          "load",
          [](SlotFile &file, const nb::bytes &checksums, const nb::bytes &slots, const Contiguous &memory) {
            return load(file, checksums, slots, reinterpret_cast<std::byte *>(memory.data()));
          },
          nb::arg("checksums"), nb::arg("slots"), nb::arg("memory"),
          "Read a commit into memory; (tile, offset, error number or 0) of what is damaged.")
      .def(
          "verify",
          [](SlotFile &file, const nb::bytes &checksums, const nb::bytes &slots) {
            return load(file, checksums, slots, nullptr);
          },
          nb::arg("checksums"), nb::arg("slots"), "The same without keeping what was read.")
      .def("map", &SlotFile::map, unlocked, "The commit last loaded or verified as memory, for reading.")
      .def(
          "write_changed",
          [](SlotFile &file, const Contiguous &memory) {
            nb::gil_scoped_release release;
            return file.write_changed(reinterpret_cast<const std::byte *>(memory.data()));
          },
          nb::arg("memory"), "Write what has changed since the last commit and make it durable; its bytes.")
      .def_prop_ro(
          "checksums", [](const SlotFile &file) { return content(file.written().checksums); },
          "Of all tiles as written last, 4 bytes each.")
      .def_prop_ro(
          "slots", [](const SlotFile &file) { return content(file.written().slots); }, "Of the same, a byte each.")
      .def("accept", &SlotFile::accept, "What was written last is the last commit from now on.");
}

}  // namespace outcrop
