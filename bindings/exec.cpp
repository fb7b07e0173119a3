// This file converts plans, sizes, acquisition requests and counters between Python and the executor.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/base/threads.hpp"
#include "outcrop/exec/executor.hpp"
#include "outcrop/exec/meters.hpp"
#include "outcrop/exec/topology.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

template <typename Value>
Value get(nb::handle object, const char *name) {
  return nb::cast<Value>(object.attr(name));
}

long field(nb::handle object, const char *name) { return get<long>(object, name); }

Grid to_grid(nb::handle python) {
  Grid grid;
  const auto pair = [&]<typename Value>(const char *name, Value &first, Value &second) {
    first = nb::cast<Value>(python.attr(name)[0]);
    second = nb::cast<Value>(python.attr(name)[1]);
  };
  pair("shape", grid.nz, grid.ny);
  grid.nx = nb::cast<long>(python.attr("shape")[2]);
  grid.radius_z = field(python, "radius_z");
  grid.radius_y = field(python, "radius_y");
  pair("rim_z", grid.rim_z_low, grid.rim_z_high);
  pair("rim_y", grid.rim_y_low, grid.rim_y_high);
  pair("periodic", grid.periodic_z, grid.periodic_y);
  grid.descends = field(python, "block_order") < 0;
  grid.skew_z = field(python, "skew_z");
  grid.skew_y = field(python, "skew_y");
  grid.skew_x = field(python, "skew_x");
  grid.statics_z = field(python, "statics_z");
  grid.item_bytes = get<std::size_t>(python, "item_bytes");
  grid.pitch_bytes = get<std::size_t>(python, "pitch_bytes");
  grid.plane_bytes = get<std::size_t>(python, "plane_bytes");
  grid.record_bytes = get<std::size_t>(python, "record_bytes");
  return grid;
}

Fields to_fields(nb::iterable list) {
  std::vector<Field> fields;
  for (nb::handle one : list)
    fields.push_back({get<bool>(one, "is_static"), get<bool>(one, "is_double"), get<bool>(one, "has_previous"),
                      get<bool>(one, "flips"), get<bool>(one, "is_history"), field(one, "ahead"),
                      field(one, "follows")});
  return Fields(std::move(fields));
}

// `Calls` has one tuple for each kernel call: the address of the kernel, the operands that the kernel reads, and the
// operands that it writes. An operand of a kernel is a tuple (field, copy). The value 0 of `copy` means the first ring
// of the field, and the value 1 means the second ring.
using Operands = std::vector<std::tuple<std::size_t, std::size_t>>;
using Calls = std::vector<std::tuple<std::uintptr_t, Operands, Operands>>;

Stages to_stages(nb::handle grid, const Calls &calls, const Fields &fields, StepScalars scalars,
                 StepScalars lead_scalars) {
  Stages stages;
  stages.scalars = std::move(scalars);
  stages.lead = {field(grid, "lead"), field(grid, "lead_stages"), std::move(lead_scalars)};
  stages.steps = (calls.size() - static_cast<std::size_t>(stages.lead.levels)) / get<std::size_t>(grid, "stages");
  const auto rings = [&](const Operands &operands) {
    std::vector<std::size_t> result;
    for (const auto &[field, copy] : operands) result.push_back(fields.ring(field, copy));
    return result;
  };
  for (const auto &[kernel, sources, targets] : calls)
    stages.calls.push_back({reinterpret_cast<outcrop_kernel>(kernel), rings(sources), rings(targets)});
  return stages;
}

Tiling to_tiling(nb::handle sizes) {
  return Tiling{get<long>(sizes, "diamond"), get<long>(sizes, "sweep_rows"),   get<long>(sizes, "planes_per_call"),
                get<long>(sizes, "chunk"),   get<long>(sizes, "rows_at_once"), get<bool>(sizes, "prefetch"),
                get<long>(sizes, "columns")};
}

Rectangle to_rectangle(nb::handle cells) {
  return {field(cells, "y0"), field(cells, "y1"), field(cells, "x0"), field(cells, "x1")};
}

Bound to_bound(nb::handle bound) { return {field(bound, "at_zero"), field(bound, "slope")}; }

UpdateRegion to_region(nb::handle region) {
  return {to_bound(region.attr("z_low")),  to_bound(region.attr("z_high")), to_bound(region.attr("y_low")),
          to_bound(region.attr("y_high")), to_bound(region.attr("x_low")),  to_bound(region.attr("x_high"))};
}

Array to_array(nb::handle name) {
  const auto text = nb::cast<std::string_view>(name);
  if (text == "source") return Array::source;
  if (text == "target") return Array::target;
  if (text == "statics") return Array::statics;
  if (text == "other") return Array::other;
  if (text == "fringes") return Array::fringes;
  if (text == "recomputed") return Array::recomputed;
  if (text == "history") return Array::history;
  if (text == "faces") return Array::faces;
  if (text == "static_faces") return Array::static_faces;
  if (text == "stairs") return Array::stairs;
  if (text == "finished") return Array::finished;
  throw nb::type_error(text_from("no such array: ", text).c_str());
}

Action to_block(nb::handle action) {
  return BlockAction{to_rectangle(action.attr("frame")),
                     {field(action, "own_z0"), field(action, "own_z1"), to_rectangle(action.attr("own"))},
                     field(action, "shift")};
}

Action to_carry(nb::handle action) {
  return CarryAction{field(action, "z0"), field(action, "z1"), to_rectangle(action.attr("area")),
                     field(action, "level")};
}

Action to_copy(nb::handle action) {
  return CopyAction{field(action, "z0"), field(action, "z1"), to_rectangle(action.attr("area")),
                    to_rectangle(action.attr("own")), field(action, "recomputed")};
}

// Converts a Python action to `TransferAction`. `TransferAction` must be ReadAction or WriteAction.
template <typename TransferAction>
Action to_transfer(nb::handle action) {
  return TransferAction{field(action, "z0"), field(action, "z1"), to_rectangle(action.attr("area")),
                        to_array(action.attr("array")), field(action, "level")};
}

Action to_update(nb::handle action) {
  return UpdateAction{field(action, "zeta0"), field(action, "zeta1"), field(action, "levels"),
                      to_region(action.attr("region"))};
}

Action to_check(nb::handle action) {
  const Array array = to_array(action.attr("array"));
  if (array != Array::source && array != Array::target && array != Array::statics)
    throw nb::type_error("only source, target and statics have checksums");
  return CheckAction{field(action, "z0"), field(action, "z1"), to_rectangle(action.attr("area")), array};
}

Action to_commit(nb::handle) { return CommitAction{}; }

void make_pass(Pass *place, nb::iterable actions, long levels) {
  const std::pair<const char *, Action (*)(nb::handle)> conversions[] = {
      {"Block", to_block}, {"Carry", to_carry},   {"Read", to_transfer<ReadAction>},
      {"Copy", to_copy},   {"Update", to_update}, {"Write", to_transfer<WriteAction>},
      {"Check", to_check}, {"Commit", to_commit},
  };
  const nb::module_ module = nb::module_::import_("outcrop.plan.actions");
  std::map<PyObject *, Action (*)(nb::handle)> by_type;
  for (const auto &[name, convert] : conversions) by_type[module.attr(name).ptr()] = convert;
  Pass pass{{}, levels};
  for (nb::handle action : actions) {
    const auto found = by_type.find(action.type().ptr());
    if (found == by_type.end()) throw nb::type_error("not an action of outcrop.plan.actions");
    pass.actions.push_back(found->second(action));
  }
  new (place) Pass(std::move(pass));
}

std::vector<std::byte> to_bytes(nb::bytes bytes) {
  const auto *data = reinterpret_cast<const std::byte *>(bytes.c_str());
  return {data, data + bytes.size()};
}

nb::bytes from_bytes(const std::vector<std::byte> &bytes) { return nb::bytes(bytes.data(), bytes.size()); }

template <typename Value, typename... Shape>
using Values = nb::ndarray<nb::numpy, Value, nb::c_contig, Shape...>;

std::vector<Cell> to_cells(nb::handle object) {
  const auto cells = get<Values<const std::int64_t, nb::shape<-1, 3>>>(object, "cells");
  std::vector<Cell> result;
  for (std::size_t i = 0; i < cells.shape(0); ++i) result.push_back({cells(i, 0), cells(i, 1), cells(i, 2)});
  return result;
}

Snapshot to_snapshot(nb::handle one) {
  Snapshot result;
  result.field = get<std::size_t>(one, "field");
  result.age = get<int>(one, "age");
  result.done = get<long>(one, "step");
  const nb::object box = one.attr("box");
  long *const places[] = {&result.z0, &result.z1, &result.y0, &result.y1, &result.x0, &result.x1};
  for (std::size_t i = 0; i < 6; ++i) *places[i] = nb::cast<long>(box[i / 2][i % 2]);
  result.path = get<std::string>(one, "path");
  result.offset = get<std::uint64_t>(one, "offset_bytes");
  result.direct = get<bool>(one, "direct");
  result.folder = get<int>(one, "folder");
  result.label = get<std::string>(one, "label");
  const nb::object group = one.attr("group");
  result.group = {nb::cast<long>(group[0]), nb::cast<long>(group[1]), nb::cast<long>(group[2])};
  return result;
}

// Converts a PassAcquisition (run/acquisition/pass_acquisition.py) to the requests of the executor. The result refers
// to values of `python`, so `python` must exist longer than the result.
AcquisitionRequests to_requests(nb::handle python) {
  AcquisitionRequests result;
  for (nb::handle one : python.attr("injections")) {
    const auto values = get<Values<const std::uint8_t, nb::ndim<1>>>(one, "bytes");
    result.injections.push_back(
        {get<std::size_t>(one, "field"), to_cells(one), reinterpret_cast<const std::byte *>(values.data())});
  }
  for (nb::handle one : python.attr("lead_injections")) {
    const auto values = get<Values<const std::uint8_t, nb::ndim<1>>>(one, "bytes");
    result.lead_injections.push_back({field(one, "stage"), get<std::vector<std::size_t>>(one, "fields"), to_cells(one),
                                      reinterpret_cast<const std::byte *>(values.data())});
  }
  for (nb::handle one : python.attr("samples")) {
    const auto values = get<Values<double, nb::ndim<2>>>(one, "values");
    result.samples.push_back({get<std::size_t>(one, "field"), to_cells(one), get<bool>(one, "before"), values.data()});
  }
  for (nb::handle one : python.attr("sums"))
    result.sums.push_back({get<std::size_t>(one, "field"), get<long>(one, "step")});
  for (nb::handle one : python.attr("snapshots")) result.snapshots.push_back(to_snapshot(one));
  const nb::object staging = python.attr("staging");
  result.staging = {get<std::size_t>(staging, "slots"), get<std::size_t>(staging, "slot_bytes")};
  result.only_own = get<bool>(python, "only_own");
  result.only_own_rows = get<bool>(python, "only_own_rows");
  return result;
}

// Converts sums of fields to Python. Returns a tuple of six entries for each element of `sums`. The first entry is the
// sum of the finite values, as the bytes of an integer (ExactSum::integer()). The second entry is the sum of the values
// that are infinite or NaN. The third and fourth entries are the same two sums for the squares of the values. The fifth
// and sixth entries are the minimum and the maximum.
nb::list from_sums(const std::vector<FieldSum> &sums) {
  nb::list result;
  for (const FieldSum &one : sums)
    result.append(nb::make_tuple(from_bytes(one.sum.integer()), one.sum.special(), from_bytes(one.squares.integer()),
                                 one.squares.special(), one.minimum, one.maximum));
  return result;
}

// The memory for the window, which the caller of an executor provides.
using Memory = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

// The sizes of all rings. For each ring, the list has a tuple: the number of planes, the bytes of a slot, and the flag
// RingSpec::resident.
using Rings = std::vector<std::tuple<long, std::size_t, bool>>;

std::vector<RingSpec> to_rings(const Rings &rings) {
  std::vector<RingSpec> result;
  for (const auto &[planes, slot_bytes, resident] : rings) result.push_back({planes, slot_bytes, resident});
  return result;
}

Bind to_bind(const std::string &name) {
  if (name == "auto") return Bind::automatic;
  if (name == "cores") return Bind::cores;
  if (name == "none") return Bind::none;
  throw nb::value_error(text_from("no such way to bind: ", name).c_str());
}

// Returns a tuple for each NUMA node that this process may use. Each tuple has two numbers: the number of cores of the
// node, and the number of its processors.
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
                                        const Calls &calls, std::size_t scalars_bytes, long max_levels,
                                        unsigned threads, bool checksum, Store *store, std::optional<Memory> memory,
                                        bool lock, const std::string &bind, const std::string &topology,
                                        std::size_t lead_scalars_bytes, const nb::tuple &links) {
  ExecutorOptions options;
  options.placement = place_threads(threads, to_bind(bind), topology);
  options.rings = to_rings(rings);
  options.max_levels = max_levels;
  options.tiling = to_tiling(sizes);
  options.checksum = checksum;
  options.lock = lock;
  if (links.size() > side_count) throw nb::value_error("more links than a rank has sides");
  for (std::size_t side = 0; side < links.size(); ++side)
    if (const nb::object link = links[side]; !link.is_none()) options.links[side] = nb::cast<Link *>(link);
  if (memory) {
    if (memory->size() < Window::bytes(options.rings))
      throw InputError("memory of ", memory->size(), " bytes is less than the window takes");
    options.memory = reinterpret_cast<std::byte *>(memory->data());
  }
  const Grid core_grid = to_grid(grid);
  const Fields core_fields = to_fields(fields);
  Stages stages = to_stages(grid, calls, core_fields, {{}, scalars_bytes}, {{}, lead_scalars_bytes});
  nb::gil_scoped_release release;
  return std::make_unique<Executor>(core_grid, options, core_fields, std::move(stages), store);
}

// Element i is the number of the first file of array i in the store.
using FirstFiles = std::vector<std::uint32_t>;

// Two values for each state that a pass reads: the number of the state's file in the store, and the checksum of the
// state.
using HistoryFiles = std::vector<std::tuple<std::uint32_t, std::uint32_t>>;

// Returns, for each array, its files in the store and the seed of its seals. The object `seeds` has an attribute with
// the name `name`: a list of seeds. If `seeds` is None or the list is empty, all seeds are 0.
std::vector<PlaneFiles> to_files(const FirstFiles &first_files, long planes_per_file, nb::handle seeds,
                                 const char *name) {
  std::vector<std::uint32_t> values;
  if (!seeds.is_none()) values = nb::cast<std::vector<std::uint32_t>>(seeds.attr(name));
  if (values.empty()) values.resize(first_files.size());
  if (values.size() != first_files.size())
    throw InputError("there are ", values.size(), " seeds for ", first_files.size(), " ", name);
  std::vector<PlaneFiles> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.push_back({first_files[i], planes_per_file, values[i]});
  return result;
}

nb::tuple run(Executor &executor, const Pass &pass, const FirstFiles &source, const FirstFiles &target,
              const FirstFiles &statics, std::uint32_t scratch_file, long planes_per_file, long fringe_rows,
              nb::bytes scalars, nb::object acquisition, nb::object seeds, const HistoryFiles &history,
              nb::bytes lead_scalars, std::vector<long> recomputed_rows, nb::object before_write) {
  std::vector<HistoryFile> states;
  for (const auto &[file, sum] : history) states.push_back({file, sum});
  const PassFiles files{to_files(source, planes_per_file, seeds, "sources"),
                        to_files(target, planes_per_file, seeds, "targets"),
                        to_files(statics, planes_per_file, seeds, "statics"),
                        std::move(states),
                        PlaneFiles{scratch_file, std::numeric_limits<long>::max()},
                        fringe_rows,
                        std::move(recomputed_rows)};
  std::vector<std::byte> values = to_bytes(scalars), lead_values = to_bytes(lead_scalars);
  AcquisitionRequests requests = acquisition.is_none() ? AcquisitionRequests{} : to_requests(acquisition);
  std::function<void()> wait;
  if (!before_write.is_none())
    wait = [&before_write] {
      const nb::gil_scoped_acquire acquire;
      before_write();
    };
  AcquisitionResults results;
  {
    nb::gil_scoped_release release;
    results = executor.run(pass, files, std::move(values), std::move(requests), std::move(lead_values), wait);
  }
  return nb::make_tuple(from_sums(results.sums), results.snapshot_sums);
}

nb::dict counters(const Executor &executor) {
  const ExecutorCounters &seconds = executor.counters();
  nb::dict result;
  result["cells_updated"] = executor.cells_updated();
  result["bytes_read"] = executor.bytes_read();
  result["bytes_written"] = executor.bytes_written();
  result["bytes_sent"] = executor.bytes_sent();
  result["bytes_received"] = executor.bytes_received();
  result["bytes_snapshots"] = executor.bytes_snapshots();
  result["seconds_transfer"] = executor.seconds_transfer();
  result["seconds_read_wait"] = seconds.seconds_read_wait.load();
  result["seconds_write_wait"] = seconds.seconds_write_wait.load();
  result["seconds_face_wait"] = seconds.seconds_face_wait.load();
  result["seconds_update"] = seconds.seconds_update.load();
  result["seconds_copy"] = seconds.seconds_copy.load();
  result["seconds_checksum"] = seconds.seconds_checksum.load();
  result["seconds_commit"] = seconds.seconds_commit.load();
  return result;
}

std::unique_ptr<UpdateMeter> make_update_meter(nb::object grid, nb::iterable fields, const Calls &calls,
                                               nb::bytes scalars, unsigned threads, long ring_planes,
                                               const std::string &bind, nb::bytes lead_scalars) {
  const Grid core_grid = to_grid(grid);
  const Fields core_fields = to_fields(fields);
  Stages stages = to_stages(grid, calls, core_fields, {to_bytes(scalars), 0}, {to_bytes(lead_scalars), 0});
  ThreadPlacement placement = place_threads(threads, to_bind(bind));
  nb::gil_scoped_release release;
  return std::make_unique<UpdateMeter>(core_grid, std::move(stages), std::move(placement), core_fields.rings(),
                                       ring_planes);
}

std::vector<double> measure(UpdateMeter &meter, nb::object sizes, nb::object frame, nb::object region, int repeats,
                            bool shifted) {
  const Tiling tiling = to_tiling(sizes);
  const long levels = field(sizes, "levels"), slab = field(sizes, "slab");
  const Rectangle cells = to_rectangle(frame);
  const UpdateRegion part = to_region(region);
  nb::gil_scoped_release release;
  return meter.measure(tiling, levels, slab, cells, part, repeats, shifted);
}

}  // namespace

void bind_exec(nb::module_ &module) {
  nb::class_<Pass>(module, "Pass").def("__init__", &make_pass, nb::arg("actions"), nb::arg("levels"));
  nb::class_<Executor>(module, "Executor")
      .def("run", &run, nb::arg("one_pass"), nb::arg("source"), nb::arg("target"), nb::arg("statics"),
           nb::arg("scratch_file"), nb::arg("planes_per_file"), nb::arg("fringe_rows"), nb::arg("scalars"),
           nb::arg("acquisition") = nb::none(), nb::arg("seeds") = nb::none(), nb::arg("history") = HistoryFiles(),
           nb::arg("lead_scalars") = nb::bytes("", 0), nb::arg("recomputed_rows") = std::vector<long>(),
           nb::arg("before_write") = nb::none())
      .def("swap_rings", &Executor::swap_rings)
      .def("cancel", &Executor::cancel)
      .def("counters", &counters)
      .def("not_finite", &Executor::not_finite)
      .def_prop_ro("memory_bytes", &Executor::memory_bytes)
      .def_prop_ro("threads_on_nodes", [](const Executor &executor) { return executor.placement().node_threads; })
      .def_prop_ro("is_bound", [](const Executor &executor) { return executor.placement().bound; });
  module.def("make_executor", &make_executor, nb::arg("grid"), nb::arg("sizes"), nb::arg("rings"), nb::arg("fields"),
             nb::arg("calls"), nb::arg("scalars_bytes"), nb::arg("max_levels"), nb::arg("threads"), nb::arg("checksum"),
             nb::arg("store").none(), nb::arg("memory").noconvert() = nb::none(), nb::arg("lock") = false,
             nb::arg("bind") = "none", nb::arg("topology") = "", nb::arg("lead_scalars_bytes") = 0,
             nb::arg("links") = nb::make_tuple(nb::none(), nb::none()), nb::keep_alive<0, 10>(),
             nb::keep_alive<0, 11>(), nb::keep_alive<0, 16>());
  nb::class_<UpdateMeter>(module, "UpdateMeter")
      .def(nb::new_(&make_update_meter), nb::arg("grid"), nb::arg("fields"), nb::arg("calls"), nb::arg("scalars"),
           nb::arg("threads"), nb::arg("ring_planes"), nb::arg("bind") = "none",
           nb::arg("lead_scalars") = nb::bytes("", 0))
      .def("measure", &measure, nb::arg("sizes"), nb::arg("frame"), nb::arg("region"), nb::arg("repeats"),
           nb::arg("shifted") = false)
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
