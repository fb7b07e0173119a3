// Conversion only: plans, sizes and counters between Python and the executor.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/exec/calibrate.hpp"
#include "outcrop/exec/executor.hpp"
#include "outcrop/exec/placement.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

Grid to_grid(nb::handle python) {
  Grid grid;
  grid.nz = nb::cast<long>(python.attr("shape")[0]);
  grid.ny = nb::cast<long>(python.attr("shape")[1]);
  grid.nx = nb::cast<long>(python.attr("shape")[2]);
  grid.radius_z = nb::cast<long>(python.attr("radius_z"));
  grid.radius_y = nb::cast<long>(python.attr("radius_y"));
  grid.skew = nb::cast<long>(python.attr("skew"));
  grid.item_bytes = nb::cast<std::size_t>(python.attr("item_bytes"));
  grid.pitch_bytes = nb::cast<std::size_t>(python.attr("pitch_bytes"));
  grid.plane_bytes = nb::cast<std::size_t>(python.attr("plane_bytes"));
  grid.record_bytes = nb::cast<std::size_t>(python.attr("record_bytes"));
  return grid;
}

Tiling to_tiling(nb::handle sizes) {
  return Tiling{nb::cast<long>(sizes.attr("diamond")), nb::cast<long>(sizes.attr("sweep_rows")),
                nb::cast<long>(sizes.attr("planes_per_call"))};
}

long field(nb::handle action, const char *name) { return nb::cast<long>(action.attr(name)); }

Cut to_cut(nb::handle cut) { return {field(cut, "y0"), field(cut, "y1"), field(cut, "x0"), field(cut, "x1")}; }

Bound to_bound(nb::handle bound) { return {field(bound, "at_zero"), field(bound, "slope")}; }

Region to_region(nb::handle region) {
  return {to_bound(region.attr("z_low")),  to_bound(region.attr("z_high")), to_bound(region.attr("y_low")),
          to_bound(region.attr("y_high")), to_bound(region.attr("x_low")),  to_bound(region.attr("x_high"))};
}

Array to_array(nb::handle action) {
  const auto name = nb::cast<std::string>(action.attr("array"));
  if (name == "source") return Array::source;
  if (name == "target") return Array::target;
  if (name == "other") return Array::other;
  if (name == "faces") return Array::faces;
  throw nb::type_error(("no such array: " + name).c_str());
}

Action to_action(nb::handle action) {
  const auto kind = nb::cast<std::string>(action.type().attr("__name__"));
  if (kind == "Block")
    return BlockAction{to_cut(action.attr("frame")),
                       Own{field(action, "own_z0"), field(action, "own_z1"), to_cut(action.attr("own"))},
                       field(action, "shift")};
  if (kind == "Carry")
    return CarryAction{field(action, "z0"), field(action, "z1"), to_cut(action.attr("cut")), field(action, "level")};
  if (kind == "Read")
    return ReadAction{field(action, "z0"), field(action, "z1"), to_cut(action.attr("cut")), to_array(action),
                      field(action, "level")};
  if (kind == "Copy") return CopyAction{field(action, "z0"), field(action, "z1"), to_cut(action.attr("cut"))};
  if (kind == "Update")
    return UpdateAction{field(action, "zeta0"), field(action, "zeta1"), field(action, "levels"),
                        to_region(action.attr("region"))};
  if (kind == "Write")
    return WriteAction{field(action, "z0"), field(action, "z1"), to_cut(action.attr("cut")), to_array(action),
                       field(action, "level")};
  if (kind == "Commit") return CommitAction{};
  throw nb::type_error(("no such action: " + kind).c_str());
}

Actions to_actions(nb::iterable list) {
  Actions actions;
  for (nb::handle action : list) actions.push_back(to_action(action));
  return actions;
}

std::vector<std::byte> to_bytes(nb::bytes bytes) {
  const auto *data = reinterpret_cast<const std::byte *>(bytes.c_str());
  return {data, data + bytes.size()};
}

// Memory of the caller's that a window can lie in.
using Memory = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

outcrop_kernel to_kernel(std::uintptr_t address) { return reinterpret_cast<outcrop_kernel>(address); }

Bind to_bind(const std::string &name) {
  if (name == "auto") return Bind::automatic;
  if (name == "cores") return Bind::cores;
  if (name == "none") return Bind::none;
  throw nb::value_error(("no such way to bind: " + name).c_str());
}

// Cores and processors of each node that this process may use.
std::vector<std::tuple<unsigned, std::size_t>> numa_nodes(const std::string &topology) {
  std::vector<std::tuple<unsigned, std::size_t>> result;
  for (const NumaNode &node : (topology.empty() ? system_topology() : synthetic_topology(topology)).nodes)
    result.emplace_back(node.cores, node.processors.size());
  return result;
}

std::vector<unsigned> threads_on_nodes(unsigned threads, const std::string &bind, const std::string &topology) {
  return place_threads(threads, to_bind(bind), topology).node_threads;
}

std::unique_ptr<Executor> make_executor(nb::object grid, nb::object sizes, long ring_even, long ring_odd,
                                        std::size_t slot_bytes, long levels_max, std::uintptr_t kernel,
                                        nb::bytes scalars, unsigned threads, bool checksum, Store *store,
                                        std::optional<Memory> memory, bool lock, const std::string &bind,
                                        const std::string &topology) {
  ExecutorOptions options;
  options.placement = place_threads(threads, to_bind(bind), topology);
  options.ring_planes = {ring_even, ring_odd};
  options.slot_bytes = slot_bytes;
  options.levels_max = levels_max;
  options.tiling = to_tiling(sizes);
  options.checksum = checksum;
  options.lock = lock;
  if (memory) {
    if (memory->size() < Window::bytes(options.ring_planes, slot_bytes))
      throw InputError("memory of " + std::to_string(memory->size()) + " bytes is less than the window takes");
    options.memory = reinterpret_cast<std::byte *>(memory->data());
  }
  const Grid core_grid = to_grid(grid);
  std::vector<std::byte> values = to_bytes(scalars);
  nb::gil_scoped_release release;
  return std::make_unique<Executor>(core_grid, options, to_kernel(kernel), std::move(values), store);
}

// `first_files` are those of source, target and other; other is one file.
void run(Executor &executor, nb::iterable actions, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> first_files,
         long planes_per_file, std::uint32_t faces_file, long faces_rows) {
  const Actions list = to_actions(actions);
  const auto [source, target, other] = first_files;
  const PassFiles files{PlaneFiles{source, planes_per_file}, PlaneFiles{target, planes_per_file},
                        PlaneFiles{other, std::numeric_limits<long>::max()}, faces_file, faces_rows};
  nb::gil_scoped_release release;
  executor.run(list, files);
}

nb::dict counters(const Executor &executor) {
  const ExecutorCounters &seconds = executor.counters();
  nb::dict result;
  result["cells_updated"] = executor.cells_updated();
  result["bytes_read"] = executor.bytes_read();
  result["bytes_written"] = executor.bytes_written();
  result["seconds_read_wait"] = seconds.seconds_read_wait.load();
  result["seconds_write_wait"] = seconds.seconds_write_wait.load();
  result["seconds_update"] = seconds.seconds_update.load();
  result["seconds_copy"] = seconds.seconds_copy.load();
  result["seconds_checksum"] = seconds.seconds_checksum.load();
  result["seconds_commit"] = seconds.seconds_commit.load();
  return result;
}

std::unique_ptr<UpdateMeter> make_update_meter(nb::object grid, std::uintptr_t kernel, nb::bytes scalars,
                                               unsigned threads, long ring_planes, const std::string &bind) {
  const Grid core_grid = to_grid(grid);
  std::vector<std::byte> values = to_bytes(scalars);
  Placement placement = place_threads(threads, to_bind(bind));
  nb::gil_scoped_release release;
  return std::make_unique<UpdateMeter>(core_grid, to_kernel(kernel), std::move(values), std::move(placement),
                                       ring_planes);
}

double measure(UpdateMeter &meter, nb::object sizes, nb::object frame, nb::object region, int repeats) {
  const Tiling tiling = to_tiling(sizes);
  const long levels = field(sizes, "levels"), slab = field(sizes, "slab");
  const Cut cut = to_cut(frame);
  const Region part = to_region(region);
  nb::gil_scoped_release release;
  return meter.measure(tiling, levels, slab, cut, part, repeats);
}

}  // namespace

void bind_exec(nb::module_ &module) {
  nb::class_<Executor>(module, "Executor")
      .def("run", &run, nb::arg("actions"), nb::arg("first_files"), nb::arg("planes_per_file"),
           nb::arg("faces_file") = 0, nb::arg("faces_rows") = 0)
      .def("swap_rings", &Executor::swap_rings)
      .def("cancel", &Executor::cancel)
      .def("counters", &counters)
      .def_prop_ro("memory_bytes", &Executor::memory_bytes)
      .def_prop_ro("threads_on_nodes", [](const Executor &executor) { return executor.placement().node_threads; })
      .def_prop_ro("is_bound", [](const Executor &executor) { return executor.placement().is_bound; });
  module.def("make_executor", &make_executor, nb::arg("grid"), nb::arg("sizes"), nb::arg("ring_even"),
             nb::arg("ring_odd"), nb::arg("slot_bytes"), nb::arg("levels_max"), nb::arg("kernel"), nb::arg("scalars"),
             nb::arg("threads"), nb::arg("checksum"), nb::arg("store").none(),
             nb::arg("memory").noconvert() = nb::none(), nb::arg("lock") = false, nb::arg("bind") = "none",
             nb::arg("topology") = "", nb::keep_alive<0, 11>(), nb::keep_alive<0, 12>());
  nb::class_<UpdateMeter>(module, "UpdateMeter")
      .def(nb::new_(&make_update_meter), nb::arg("grid"), nb::arg("kernel"), nb::arg("scalars"), nb::arg("threads"),
           nb::arg("ring_planes"), nb::arg("bind") = "none")
      .def("measure", &measure, nb::arg("sizes"), nb::arg("frame"), nb::arg("region"), nb::arg("repeats"))
      .def_static(
          "planes_needed",
          [](nb::object grid, long levels, long slab) {
            return UpdateMeter::planes_needed(to_grid(grid), levels, slab);
          },
          nb::arg("grid"), nb::arg("levels"), nb::arg("slab"));
  module.def("has_hwloc", &has_hwloc);
  module.def("numa_nodes", &numa_nodes, nb::arg("topology") = "");
  module.def("threads_on_nodes", &threads_on_nodes, nb::arg("threads"), nb::arg("bind"), nb::arg("topology") = "");
  module.def("measure_checksum_rate", &measure_checksum_rate, nb::arg("threads"), nb::arg("plane_bytes"),
             nb::arg("total_bytes"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace outcrop
