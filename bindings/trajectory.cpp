// This file converts trajectories between Python and the core. It has no other logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "faults.hpp"
#include "outcrop/trajectory/trajectory.hpp"
#include "shared.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
using NamedShapes = std::vector<std::tuple<std::string, std::vector<std::uint64_t>>>;
using Limits = std::vector<std::tuple<std::string, std::uint64_t>>;

StateLayout to_layout(const NamedShapes &fields, const std::string &dtype) {
  std::vector<StateField> found;
  for (const auto &[name, shape] : fields) found.push_back({name, shape});
  return {std::move(found), dtype};
}

TrajectoryOptions to_options(std::size_t buffers, const std::string &io, const std::map<std::string, double> &faults) {
  return {buffers, io, to_faults(faults)};
}

std::unique_ptr<Trajectory> create(const NamedShapes &fields, const std::string &dtype, std::uint64_t states,
                                   std::uint64_t memory_bytes, const Limits &directories, std::size_t buffers,
                                   const std::string &io, const std::map<std::string, double> &faults) {
  const StateLayout layout = to_layout(fields, dtype);
  std::vector<DirectoryLimit> limits;
  for (const auto &[path, bytes] : directories) limits.push_back({path, bytes});
  const TrajectoryOptions options = to_options(buffers, io, faults);
  nb::gil_scoped_release release;
  return Trajectory::create(layout, states, memory_bytes, limits, options);
}

std::unique_ptr<Trajectory> open(const std::string &path, std::size_t buffers, const std::string &io,
                                 const std::map<std::string, double> &faults) {
  const TrajectoryOptions options = to_options(buffers, io, faults);
  nb::gil_scoped_release release;
  return Trajectory::open(path, options);
}

// Gives access to the bytes of `arrays`, which has one array for each field. Raises InputError if the number of arrays
// or the size of an array does not match the trajectory's layout.
std::deque<Buffer> buffers_of(const Trajectory &trajectory, const nb::list &arrays, bool writable) {
  const StateLayout &layout = trajectory.layout();
  if (arrays.size() != layout.count()) throw InputError("a state needs an array for each field");
  std::deque<Buffer> buffers;
  for (std::size_t field = 0; field < layout.count(); ++field) {
    buffers.emplace_back(arrays[field], writable);
    if (buffers.back().size() != layout.cell_bytes(field))
      throw InputError("field ", layout.fields()[field].name, " has ", layout.cell_bytes(field), " bytes, not ",
                       buffers.back().size());
  }
  return buffers;
}

std::uint64_t push(Trajectory &trajectory, const nb::list &arrays) {
  const std::deque<Buffer> buffers = buffers_of(trajectory, arrays, false);
  std::vector<const std::byte *> cells;
  for (const Buffer &buffer : buffers) cells.push_back(buffer.data());
  nb::gil_scoped_release release;
  return trajectory.push(cells);
}

// Returns the number of the state and the bytes of each field. The trajectory's memory exists at least as long as the
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

void read(Trajectory &trajectory, std::uint64_t state, const nb::list &arrays) {
  const std::deque<Buffer> buffers = buffers_of(trajectory, arrays, true);
  std::vector<std::byte *> cells;
  for (const Buffer &buffer : buffers) cells.push_back(buffer.data());
  nb::gil_scoped_release release;
  trajectory.read(state, cells);
}

NamedShapes fields_of(const Trajectory &trajectory) {
  NamedShapes found;
  for (const StateField &field : trajectory.layout().fields()) found.emplace_back(field.name, field.shape);
  return found;
}

}  // namespace

void bind_trajectory(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  const std::map<std::string, double> none;
  nb::class_<Trajectory>(module, "StateStack", "The states of a trajectory, see trajectory/trajectory.hpp.")
      .def_static(
          "create", &create, nb::arg("fields"), nb::arg("dtype"), nb::arg("states"), nb::arg("memory_bytes"),
          nb::arg("directories"), nb::arg("buffers") = 3, nb::arg("io") = "auto", nb::arg("faults") = none,
          "Make a trajectory. `fields` has (name, shape), `directories` has (path, limit in bytes or 0). Raises "
          "InputError, StorageError.")
      .def_static("open", &open, nb::arg("path"), nb::arg("buffers") = 3, nb::arg("io") = "auto",
                  nb::arg("faults") = none, "Open a trajectory. Raises InputError, StorageError, CorruptionError.")
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
      .def_prop_ro("is_durable", &Trajectory::is_durable, "Whether commit() is possible.");
}

}  // namespace outcrop
