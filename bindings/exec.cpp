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
#include "outcrop/base/rounding.hpp"
#include "outcrop/exec/calibrate.hpp"
#include "outcrop/exec/executor.hpp"
#include "outcrop/exec/placement.hpp"
#include "taps.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

long field(nb::handle object, const char *name) { return nb::cast<long>(object.attr(name)); }

Grid to_grid(nb::handle python) {
  Grid grid;
  const auto pair = [&](const char *name, long &first, long &second) {
    first = nb::cast<long>(python.attr(name)[0]);
    second = nb::cast<long>(python.attr(name)[1]);
  };
  pair("shape", grid.nz, grid.ny);
  grid.nx = nb::cast<long>(python.attr("shape")[2]);
  grid.radius_z = field(python, "radius_z");
  grid.radius_y = field(python, "radius_y");
  pair("rim_z", grid.rim_z_low, grid.rim_z_high);
  pair("rim_y", grid.rim_y_low, grid.rim_y_high);
  grid.periodic_z = nb::cast<bool>(python.attr("periodic")[0]);
  grid.periodic_y = nb::cast<bool>(python.attr("periodic")[1]);
  grid.skew_z = field(python, "skew_z");
  grid.skew_y = field(python, "skew_y");
  grid.statics_z = field(python, "statics_z");
  grid.item_bytes = nb::cast<std::size_t>(python.attr("item_bytes"));
  grid.pitch_bytes = nb::cast<std::size_t>(python.attr("pitch_bytes"));
  grid.plane_bytes = nb::cast<std::size_t>(python.attr("plane_bytes"));
  grid.record_bytes = nb::cast<std::size_t>(python.attr("record_bytes"));
  return grid;
}

Fields to_fields(nb::iterable list) {
  std::vector<Field> fields;
  for (nb::handle one : list)
    fields.push_back({nb::cast<bool>(one.attr("is_static")), nb::cast<bool>(one.attr("is_double")),
                      nb::cast<bool>(one.attr("has_previous")), nb::cast<bool>(one.attr("flips"))});
  return Fields(std::move(fields));
}

// A kernel, and (field, copy) of each source and target.
using Operands = std::vector<std::tuple<std::size_t, std::size_t>>;
using Calls = std::vector<std::tuple<std::uintptr_t, Operands, Operands>>;

Stages to_stages(const Calls &calls, const Fields &fields, std::vector<std::byte> scalars, std::size_t scalars_bytes) {
  Stages stages;
  const auto rings = [&](const Operands &operands) {
    std::vector<std::size_t> result;
    for (const auto &[field, copy] : operands) result.push_back(fields.ring(field, copy));
    return result;
  };
  for (const auto &[kernel, sources, targets] : calls)
    stages.calls.push_back({reinterpret_cast<outcrop_kernel>(kernel), rings(sources), rings(targets)});
  stages.scalars = std::move(scalars);
  stages.scalars_bytes = scalars_bytes;
  return stages;
}

Tiling to_tiling(nb::handle sizes) {
  return Tiling{nb::cast<long>(sizes.attr("diamond")), nb::cast<long>(sizes.attr("sweep_rows")),
                nb::cast<long>(sizes.attr("planes_per_call")), nb::cast<long>(sizes.attr("chunk"))};
}

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
  if (name == "statics") return Array::statics;
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
  if (kind == "Copy")
    return CopyAction{field(action, "z0"), field(action, "z1"), to_cut(action.attr("cut")), to_cut(action.attr("own"))};
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

// Planes, bytes of a slot, and whether it holds all planes for good.
using Rings = std::vector<std::tuple<long, std::size_t, bool>>;

std::vector<RingSpec> to_rings(const Rings &rings) {
  std::vector<RingSpec> result;
  for (const auto &[planes, slot_bytes, is_resident] : rings) result.push_back({planes, slot_bytes, is_resident});
  return result;
}

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

std::unique_ptr<Executor> make_executor(nb::object grid, nb::object sizes, const Rings &rings, nb::iterable fields,
                                        const Calls &calls, std::size_t scalars_bytes, long levels_max,
                                        unsigned threads, bool checksum, Store *store, std::optional<Memory> memory,
                                        bool lock, const std::string &bind, const std::string &topology) {
  ExecutorOptions options;
  options.placement = place_threads(threads, to_bind(bind), topology);
  options.rings = to_rings(rings);
  options.levels_max = levels_max;
  options.tiling = to_tiling(sizes);
  options.checksum = checksum;
  options.lock = lock;
  if (memory) {
    if (memory->size() < Window::bytes(options.rings))
      throw InputError("memory of " + std::to_string(memory->size()) + " bytes is less than the window takes");
    options.memory = reinterpret_cast<std::byte *>(memory->data());
  }
  const Grid core_grid = to_grid(grid);
  const Fields core_fields = to_fields(fields);
  Stages stages = to_stages(calls, core_fields, {}, scalars_bytes);
  nb::gil_scoped_release release;
  return std::make_unique<Executor>(core_grid, options, core_fields, std::move(stages), store);
}

// Where the arrays of a pass begin: the first file of each, and of those that a pass keeps for itself.
using FirstFiles = std::vector<std::uint32_t>;

// With the seeds of their seals; none: 0 for all.
std::vector<PlaneFiles> to_files(const FirstFiles &first_files, long planes_per_file, nb::handle seeds,
                                 const char *name) {
  std::vector<std::uint32_t> values;
  if (!seeds.is_none()) values = nb::cast<std::vector<std::uint32_t>>(seeds.attr(name));
  if (values.empty()) values.resize(first_files.size());
  if (values.size() != first_files.size())
    throw InputError("there are " + std::to_string(values.size()) + " seeds for " + std::to_string(first_files.size()) +
                     " " + name);
  std::vector<PlaneFiles> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.push_back({first_files[i], planes_per_file, values[i]});
  return result;
}

nb::tuple run(Executor &executor, nb::iterable actions, long levels, const FirstFiles &source, const FirstFiles &target,
              const FirstFiles &statics, std::uint32_t scratch_file, long planes_per_file, long faces_rows,
              nb::bytes scalars, nb::object taps, nb::object seeds) {
  const Actions list = to_actions(actions);
  const PassFiles files{to_files(source, planes_per_file, seeds, "sources"),
                        to_files(target, planes_per_file, seeds, "targets"),
                        to_files(statics, planes_per_file, seeds, "statics"),
                        PlaneFiles{scratch_file, std::numeric_limits<long>::max()},
                        scratch_file,
                        faces_rows};
  std::vector<std::byte> values = to_bytes(scalars);
  TapRequests requests = taps.is_none() ? TapRequests{} : to_requests(taps);
  TapResults results;
  {
    nb::gil_scoped_release release;
    results = executor.run(list, levels, files, std::move(values), std::move(requests));
  }
  return nb::make_tuple(from_sums(results.sums), results.snapshot_sums);
}

nb::dict counters(const Executor &executor) {
  const ExecutorCounters &seconds = executor.counters();
  nb::dict result;
  result["cells_updated"] = executor.cells_updated();
  result["bytes_read"] = executor.bytes_read();
  result["bytes_written"] = executor.bytes_written();
  result["bytes_snapshots"] = executor.bytes_snapshots();
  result["seconds_read_wait"] = seconds.seconds_read_wait.load();
  result["seconds_write_wait"] = seconds.seconds_write_wait.load();
  result["seconds_update"] = seconds.seconds_update.load();
  result["seconds_copy"] = seconds.seconds_copy.load();
  result["seconds_checksum"] = seconds.seconds_checksum.load();
  result["seconds_commit"] = seconds.seconds_commit.load();
  return result;
}

std::unique_ptr<UpdateMeter> make_update_meter(nb::object grid, nb::iterable fields, const Calls &calls,
                                               nb::bytes scalars, unsigned threads, long ring_planes,
                                               const std::string &bind) {
  const Grid core_grid = to_grid(grid);
  const Fields core_fields = to_fields(fields);
  Stages stages = to_stages(calls, core_fields, to_bytes(scalars), 0);
  Placement placement = place_threads(threads, to_bind(bind));
  nb::gil_scoped_release release;
  return std::make_unique<UpdateMeter>(core_grid, std::move(stages), std::move(placement), core_fields.rings(),
                                       ring_planes);
}

std::vector<double> measure(UpdateMeter &meter, nb::object sizes, nb::object frame, nb::object region, int repeats) {
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
      .def("run", &run, nb::arg("actions"), nb::arg("levels"), nb::arg("source"), nb::arg("target"), nb::arg("statics"),
           nb::arg("scratch_file"), nb::arg("planes_per_file"), nb::arg("faces_rows"), nb::arg("scalars"),
           nb::arg("taps") = nb::none(), nb::arg("seeds") = nb::none())
      .def("swap_rings", &Executor::swap_rings)
      .def("cancel", &Executor::cancel)
      .def("counters", &counters)
      .def_prop_ro("memory_bytes", &Executor::memory_bytes)
      .def_prop_ro("threads_on_nodes", [](const Executor &executor) { return executor.placement().node_threads; })
      .def_prop_ro("is_bound", [](const Executor &executor) { return executor.placement().is_bound; });
  module.def("make_executor", &make_executor, nb::arg("grid"), nb::arg("sizes"), nb::arg("rings"), nb::arg("fields"),
             nb::arg("calls"), nb::arg("scalars_bytes"), nb::arg("levels_max"), nb::arg("threads"), nb::arg("checksum"),
             nb::arg("store").none(), nb::arg("memory").noconvert() = nb::none(), nb::arg("lock") = false,
             nb::arg("bind") = "none", nb::arg("topology") = "", nb::keep_alive<0, 10>(), nb::keep_alive<0, 11>());
  nb::class_<UpdateMeter>(module, "UpdateMeter")
      .def(nb::new_(&make_update_meter), nb::arg("grid"), nb::arg("fields"), nb::arg("calls"), nb::arg("scalars"),
           nb::arg("threads"), nb::arg("ring_planes"), nb::arg("bind") = "none")
      .def("measure", &measure, nb::arg("sizes"), nb::arg("frame"), nb::arg("region"), nb::arg("repeats"))
      .def_static(
          "planes_needed",
          [](nb::object grid, long levels, long slab) {
            return UpdateMeter::planes_needed(to_grid(grid), levels, slab);
          },
          nb::arg("grid"), nb::arg("levels"), nb::arg("slab"));
  module.def("restore_rounding", &StandardRounding::restore);
  module.def("has_hwloc", &has_hwloc);
  module.def("numa_nodes", &numa_nodes, nb::arg("topology") = "");
  module.def("threads_on_nodes", &threads_on_nodes, nb::arg("threads"), nb::arg("bind"), nb::arg("topology") = "");
  module.def("measure_checksum_rate", &measure_checksum_rate, nb::arg("threads"), nb::arg("plane_bytes"),
             nb::arg("total_bytes"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace outcrop
