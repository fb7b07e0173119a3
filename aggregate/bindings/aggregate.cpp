// Python bindings of aggregation. Each function that may wait for other ranks or for storage releases the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/aggregate/plan.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/error.hpp"
#include "shared.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using namespace aggregate;

using Sizes = std::vector<std::uint64_t>;
using Variables = std::vector<std::vector<Extent>>;

template <typename Value>
using Array = nb::ndarray<const Value, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Value>
Value get(nb::handle object, const char *name) {
  return nb::cast<Value>(object.attr(name));
}

template <typename Value>
std::vector<Value> to_vector(const Array<Value> &array) {
  return {array.data(), array.data() + array.size()};
}

// Returns a function that reads rows of distances from a Python object. The Python object must exist as long as the
// returned function is used. The returned function holds the GIL while it reads a row of distances.
Distances to_distances(nb::handle python) {
  return [python](std::size_t node, std::span<double> row) {
    const nb::gil_scoped_acquire hold;
    const auto array = nb::cast<Array<double>>(python.attr("row")(node));
    if (array.size() != row.size())
      throw InputError("node " + std::to_string(node) + " has distances to " + std::to_string(array.size()) +
                       " nodes; there are " + std::to_string(row.size()));
    std::copy_n(array.data(), row.size(), row.begin());
  };
}

// --- plans and files -------------------------------------------------------------------------------------------------

// A plan of the C++ core, in a form that Python can use. In a program without MPI, this object also owns a transport
// with one rank.
struct BoundPlan {
  std::unique_ptr<ThreadRanks> alone;
  std::string library;
  std::optional<PlacedPlan> placed;

  const PlanSummary &summary() const { return placed->plan().summary(); }
};

// An operation and its memory. The destructor destroys the operation first, because the operation uses the memory.
class BoundRequest {
 public:
  BoundRequest(std::list<Buffer> memory, Operation operation)
      : memory_(std::move(memory)), operation_(std::move(operation)) {}
  BoundRequest(const BoundRequest &) = delete;
  BoundRequest &operator=(const BoundRequest &) = delete;
  ~BoundRequest() {
    const nb::gil_scoped_release release;
    operation_ = Operation();
  }

  bool test() { return operation_.test(); }
  void wait() { operation_.wait(); }
  Timing timing() const { return operation_.timing(); }

 private:
  std::list<Buffer> memory_;
  Operation operation_;
};

// Converts Python's description of the machine to MachineSources. The Python object must exist until the plan is made,
// because the core reads distances from the object until then.
MachineSources to_sources(nb::handle python) {
  MachineSources sources;
  sources.node_text = get<std::string>(python, "node_text");
  sources.host = get<std::string>(python, "host");
  sources.problem = get<std::string>(python, "problem");
  const nb::object distances = python.attr("distances");
  if (!distances.is_none()) sources.distances = to_distances(distances);
  sources.distances_known = get<std::string>(python, "distances_known");
  sources.lines = get<std::vector<std::string>>(python, "lines");
  return sources;
}

// All ranks must call this function. Makes a plan. Calls the Python function `find_machine` once. The argument of
// `find_machine` has the settings that all ranks have agreed on.
std::unique_ptr<BoundPlan> make_plan(std::uintptr_t transport, Variables variables, Texts arguments, Texts hints,
                                     Texts environment, std::string problem, nb::handle find_machine) {
  auto made = std::make_unique<BoundPlan>();
  if (transport == 0) made->alone = std::make_unique<ThreadRanks>(1);
  outcrop_transport &used = made->alone ? made->alone->transport(0) : *reinterpret_cast<outcrop_transport *>(transport);
  made->library = made->alone ? "one process" : used.name;
  std::optional<Settings> settings;
  {
    const nb::gil_scoped_release release;
    settings = agreed_settings(
        used, {std::move(arguments), std::move(hints), std::move(environment), std::move(problem)}, true);
  }
  const nb::object found = find_machine(nb::cast(*settings));
  MachineSources sources = to_sources(found);
  const nb::gil_scoped_release release;
  made->placed = PlacedPlan::make(used, Declaration{std::move(variables)}, *settings, std::move(sources));
  return made;
}

CacheMode to_cache_mode(const std::string &name) {
  if (name == "buffered") return CacheMode::buffered;
  if (name == "direct") return CacheMode::direct;
  if (name != "automatic") throw InputError("path '" + name + "' must be automatic, buffered or direct");
  return CacheMode::automatic;
}

struct BoundFile {
  aggregate::File value;
  bool staged;  // true if the steps of this file are staged
};

FileOptions make_options(BoundPlan &plan, const std::string &way, bool durable, std::uint64_t size_bytes,
                         bool node_files, bool writable, const Texts &settings) {
  FileOptions options;
  options.durable = durable;
  options.cache_mode = to_cache_mode(way);
  options.size_bytes = size_bytes;
  options.node_files = node_files;
  plan.placed->set_stage(options, writable, settings);
  return options;
}

std::unique_ptr<BoundFile> create(BoundPlan &plan, const std::string &path, const std::string &way, bool durable,
                                  bool node_files, const Texts &settings, std::uint64_t size_bytes) {
  const FileOptions options = make_options(plan, way, durable, size_bytes, node_files, true, settings);
  const nb::gil_scoped_release release;
  return std::make_unique<BoundFile>(aggregate::File::create(plan.placed->plan(), path, options),
                                     !options.stage_folder.empty());
}

std::unique_ptr<BoundFile> open(BoundPlan &plan, const std::string &path, const std::string &way, bool durable,
                                bool node_files, const Texts &settings, bool writable) {
  const FileOptions options = make_options(plan, way, durable, 0, node_files, writable, settings);
  const nb::gil_scoped_release release;
  return std::make_unique<BoundFile>(aggregate::File::open(plan.placed->plan(), path, writable, options),
                                     writable && !options.stage_folder.empty());
}

std::list<Buffer> to_memory(nb::handle arrays, bool writable) {
  std::list<Buffer> memory;
  for (const nb::handle array : arrays) memory.emplace_back(array, writable);
  return memory;
}

// Releases the GIL and calls act(spans).
template <typename Byte, typename Act>
auto with_spans(const std::list<Buffer> &memory, Act &&act) {
  std::vector<std::span<Byte>> spans;
  for (const Buffer &buffer : memory) spans.emplace_back(buffer.data(), buffer.size());
  const nb::gil_scoped_release release;
  return act(spans);
}

// Calls File::begin_write() or File::begin_read(). For a write, the type `Byte` is const.
template <auto Begin, typename Byte>
std::unique_ptr<BoundRequest> begin(BoundFile &file, nb::handle arrays, std::uint64_t base,
                                    const std::string &problem) {
  std::list<Buffer> memory = to_memory(arrays, !std::is_const_v<Byte>);
  Operation operation =
      with_spans<Byte>(memory, [&](const auto &spans) { return (file.value.*Begin)(spans, base, problem); });
  return std::make_unique<BoundRequest>(std::move(memory), std::move(operation));
}

// Calls File::write() or File::read(). For a write, the type `Byte` is const.
template <auto Move, typename Byte>
Timing move(BoundFile &file, nb::handle arrays, std::uint64_t base, const std::string &problem) {
  return with_spans<Byte>(to_memory(arrays, !std::is_const_v<Byte>),
                          [&](const auto &spans) { return (file.value.*Move)(spans, base, problem); });
}

// Writes or reads the bytes of a rank without aggregation, with one system call for each contiguous run of bytes. The
// benchmark compares aggregation with this class.
class PlainRuns {
 public:
  PlainRuns(const std::string &path, Variables variables, bool writable)
      : file_(outcrop::File::open(path, writable, false)), pattern_(Declaration{std::move(variables)}) {}

  void write(nb::handle arrays) {
    move(arrays, false, [this](std::uint64_t offset, const std::byte *data, std::size_t length) {
      file_.write(offset, data, length);
    });
  }
  void read(nb::handle arrays) {
    move(arrays, true,
         [this](std::uint64_t offset, std::byte *data, std::size_t length) { file_.read(offset, data, length); });
  }
  void flush() const { file_.flush(); }

 private:
  template <typename Move>
  void move(nb::handle arrays, bool writable, Move &&act) {
    const std::list<Buffer> buffers = to_memory(arrays, writable);
    const std::span<const std::uint64_t> needed = pattern_.memory_bytes();
    std::vector<std::byte *> memory;
    for (const Buffer &buffer : buffers) {
      if (memory.size() < needed.size() && buffer.size() < needed[memory.size()])
        throw InputError("variable " + std::to_string(memory.size()) + " is shorter than declared");
      memory.push_back(buffer.data());
    }
    if (memory.size() != needed.size()) throw InputError("there must be an array for each variable");
    const nb::gil_scoped_release release;
    move_runs(pattern_, memory, 0, 0, act);
  }

  outcrop::File file_;
  Pattern pattern_;
};

std::string text_of(const Extent &extent) {
  const Range hull = extent.hull();
  return "<" + std::to_string(extent.bytes()) + " bytes in " + std::to_string(extent.blocks()) +
         " pieces between bytes " + std::to_string(hull.begin) + " and " + std::to_string(hull.end) + " of a file>";
}

Extent make_strided(std::uint64_t file_offset, std::uint64_t count, std::uint64_t block_bytes,
                    std::uint64_t file_stride_bytes, std::uint64_t memory_stride_bytes, std::uint64_t memory_offset) {
  Extent extent = strided(file_offset, count, block_bytes, file_stride_bytes, memory_stride_bytes);
  extent.memory_offset = memory_offset;
  return nested(std::move(extent));
}

void bind_extents(nb::module_ &module) {
  nb::class_<Extent>(module, "Extent")
      .def_prop_ro("nbytes", &Extent::bytes)
      .def_prop_ro("memory_nbytes", &Extent::memory_bytes)
      .def_prop_ro("blocks", &Extent::blocks)
      .def_prop_ro("begin", [](const Extent &extent) { return extent.hull().begin; })
      .def_prop_ro("end", [](const Extent &extent) { return extent.hull().end; })
      .def(
          "__eq__", [](const Extent &extent, const Extent &other) { return extent == other; }, nb::is_operator())
      .def("__repr__", &text_of);
  module.def("contiguous", &contiguous, nb::arg("file_offset"), nb::arg("nbytes"), nb::arg("memory_offset"));
  module.def("strided", &make_strided, nb::arg("file_offset"), nb::arg("count"), nb::arg("block_bytes"),
             nb::arg("file_stride_bytes"), nb::arg("memory_stride_bytes"), nb::arg("memory_offset"));
  module.def(
      "subarray",
      [](const Sizes &sizes, const Sizes &subsizes, const Sizes &starts, std::uint64_t item_bytes,
         std::uint64_t file_offset) { return subarray(sizes, subsizes, starts, item_bytes, file_offset); },
      nb::arg("sizes"), nb::arg("subsizes"), nb::arg("starts"), nb::arg("item_bytes"), nb::arg("file_offset"));
}

void bind_plain_runs(nb::module_ &module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<PlainRuns>(module, "PlainRuns")
      .def(nb::init<const std::string &, Variables, bool>(), nb::arg("path"), nb::arg("variables"), nb::arg("writable"))
      .def("write", &PlainRuns::write, nb::arg("arrays"))
      .def("read", &PlainRuns::read, nb::arg("arrays"))
      .def("flush", &PlainRuns::flush, Release());
}

void bind_plan(nb::module_ &module) {
  nb::class_<BoundPlan>(module, "Plan")
      .def(nb::new_(&make_plan), nb::arg("transport"), nb::arg("variables"), nb::arg("arguments"), nb::arg("hints"),
           nb::arg("environment"), nb::arg("problem"), nb::arg("find_machine"))
      .def_prop_ro("settings", [](const BoundPlan &plan) { return plan.placed->settings(); })
      .def_prop_ro("nbytes", [](const BoundPlan &plan) { return plan.summary().bytes; })
      .def_prop_ro("end", [](const BoundPlan &plan) { return plan.summary().hull.end; })
      .def_prop_ro("aggregators", [](const BoundPlan &plan) { return plan.summary().aggregators; })
      .def_prop_ro("tiers", [](const BoundPlan &plan) { return plan.placed->tiers(); })
      .def_prop_ro("memory_nbytes",
                   [](const BoundPlan &plan) {
                     const std::span<const std::uint64_t> bytes = plan.placed->plan().memory_bytes();
                     return Sizes(bytes.begin(), bytes.end());
                   })
      .def_prop_ro("seconds", [](const BoundPlan &plan) { return plan.placed->seconds(); })
      .def(
          "add_measured",
          [](BoundPlan &plan, const std::string &what, const Timing &timing) {
            plan.placed->add_measured(what, timing);
          },
          nb::arg("what"), nb::arg("timing"))
      .def(
          "explain",
          [](const BoundPlan &plan, std::size_t domains) { return plan.placed->explain(domains, plan.library); },
          nb::arg("domains"));
}

std::string text_of_timing(const Timing &timing) {
  return "Timing(seconds=" + std::to_string(timing.seconds) +
         ", seconds_copying=" + std::to_string(timing.seconds_copying) +
         ", seconds_filling=" + std::to_string(timing.seconds_filling) +
         ", seconds_storage=" + std::to_string(timing.seconds_storage) +
         ", seconds_messages=" + std::to_string(timing.seconds_messages) +
         ", bytes_storage=" + std::to_string(timing.bytes_storage) + ")";
}

void bind_file(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Timing>(module, "Timing")
      .def_ro("seconds", &Timing::seconds)
      .def_ro("seconds_copying", &Timing::seconds_copying)
      .def_ro("seconds_filling", &Timing::seconds_filling)
      .def_ro("seconds_storage", &Timing::seconds_storage)
      .def_ro("seconds_messages", &Timing::seconds_messages)
      .def_ro("bytes_storage", &Timing::bytes_storage)
      .def_prop_ro("overlap", &Timing::overlap)
      .def("__repr__", &text_of_timing);
  nb::class_<BoundRequest>(module, "Request")
      .def("test", &BoundRequest::test, unlocked)
      .def("wait", &BoundRequest::wait, unlocked)
      .def_prop_ro("timing", &BoundRequest::timing);
  nb::class_<BoundFile>(module, "File")
      .def_static("create", &create, nb::arg("plan"), nb::arg("path"), nb::arg("way"), nb::arg("durable"),
                  nb::arg("node_files"), nb::arg("settings"), nb::arg("size_bytes"), nb::keep_alive<0, 1>())
      .def_static("open", &open, nb::arg("plan"), nb::arg("path"), nb::arg("way"), nb::arg("durable"),
                  nb::arg("node_files"), nb::arg("settings"), nb::arg("writable"), nb::keep_alive<0, 1>())
      .def_ro("staged", &BoundFile::staged)
      .def_prop_ro("notes", [](const BoundFile &file) { return file.value.notes(); })
      .def("begin_write", &begin<&aggregate::File::begin_write, const std::byte>, nb::arg("arrays"), nb::arg("base"),
           nb::arg("problem"), nb::keep_alive<0, 1>())
      .def("begin_read", &begin<&aggregate::File::begin_read, std::byte>, nb::arg("arrays"), nb::arg("base"),
           nb::arg("problem"), nb::keep_alive<0, 1>())
      .def("write", &move<&aggregate::File::write, const std::byte>, nb::arg("arrays"), nb::arg("base"),
           nb::arg("problem"))
      .def("read", &move<&aggregate::File::read, std::byte>, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"))
      .def(
          "flush", [](BoundFile &file) { file.value.flush(); }, unlocked)
      .def("close", [](BoundFile &file) { file.value.close(); }, unlocked);
  module.def(
      "merge", [](const std::string &index, const std::string &target) { return merge(index, target); },
      nb::arg("index"), nb::arg("target"), unlocked);
}

// --- machines, the placement of aggregators, and settings ------------------------------------------------------------

Tier to_tier(nb::handle python) {
  return {get<std::string>(python, "name"),
          get<double>(python, "latency_seconds"),
          get<double>(python, "fill_bytes_per_second"),
          get<double>(python, "empty_bytes_per_second"),
          static_cast<Persistence>(nb::cast<int>(python.attr("persistence"))),
          get<bool>(python, "holds_files")};
}

Target to_target(nb::handle python) {
  return {get<double>(python, "latency_seconds"), get<double>(python, "bytes_per_second"),
          get<bool>(python, "is_shared")};
}

// Converts a description of a machine. Python code has already checked the description. The returned machine reads
// distances from `python`, so `python` must exist longer than this machine.
Machine to_machine(nb::handle python) {
  Machine machine;
  machine.node_of_rank = to_vector(get<Array<std::uint32_t>>(python, "node_of_rank"));
  machine.distance_to_target = to_vector(get<Array<double>>(python, "distance_to_target"));
  machine.room_bytes = to_vector(get<Array<std::uint64_t>>(python, "room_bytes"));
  machine.distances = to_distances(python.attr("distances"));
  const nb::object network = python.attr("network"), target = python.attr("target"),
                   target_read = python.attr("target_read"), memory = python.attr("shared_memory");
  machine.network = {get<double>(network, "latency_seconds"), get<double>(network, "card_bytes_per_second"),
                     get<std::uint32_t>(network, "cards_on_node")};
  machine.target = to_target(target);
  machine.target_read = target_read.is_none() ? machine.target : to_target(target_read);
  machine.shared_memory = {get<double>(memory, "latency_seconds"), get<double>(memory, "bytes_per_second")};
  for (const nb::handle tier : python.attr("tiers")) machine.tiers.push_back(to_tier(tier));
  return machine;
}

std::vector<Tally> to_tallies(nb::handle python) {
  const auto domains = get<Array<std::uint32_t>>(python, "domains");
  const auto ranks = get<Array<std::uint32_t>>(python, "ranks");
  const auto bytes = get<Array<std::uint64_t>>(python, "bytes");
  std::vector<Tally> tallies(domains.size());
  for (std::size_t i = 0; i < tallies.size(); ++i) tallies[i] = {domains.data()[i], ranks.data()[i], bytes.data()[i]};
  return tallies;
}

// Releases the GIL and calls act(machine, tallies).
template <typename Act>
Placed place_by(nb::handle machine, nb::handle tallies, const PlacementOptions &options, const Act &act) {
  Placed placed{to_machine(machine), options, {}};
  const std::vector<Tally> list = to_tallies(tallies);
  {
    const nb::gil_scoped_release release;
    placed.placement = act(placed.machine, list);
  }
  // The function `distances` reads a Python object. This object may be destroyed later, so later code must not call
  // `distances`.
  placed.machine.distances = nullptr;
  return placed;
}

Placed place_best_of(nb::handle machine, nb::handle tallies, std::size_t domains, const PlacementOptions &options,
                     bool try_both) {
  return place_by(machine, tallies, options, [&](const Machine &on, std::span<const Tally> list) {
    return place_best(on, list, domains, options, try_both);
  });
}

Placed place_all(nb::handle machine, nb::handle tallies, std::size_t domains, const PlacementOptions &options) {
  return place_by(machine, tallies, options,
                  [&](const Machine &on, std::span<const Tally> list) { return place(on, list, domains, options); });
}

Placed predict_of(nb::handle machine, nb::handle tallies, const PlacementOptions &options,
                  const Array<std::uint32_t> &ranks, const Array<std::uint32_t> &tiers) {
  return place_by(machine, tallies, options, [&](const Machine &on, std::span<const Tally> list) {
    return predict(on, list, options, {ranks.data(), ranks.size()}, {tiers.data(), tiers.size()});
  });
}

nb::object to_python(const SettingValue &value) {
  return std::visit(
      [](const auto &held) -> nb::object {
        if constexpr (std::is_same_v<decltype(held), const Persistence &>)
          return nb::int_(static_cast<int>(held));
        else
          return nb::cast(held);
      },
      value);
}

// Returns one tuple for each setting. Each tuple has these texts: argument, field, hint, ROMIO's hint, environment
// variable, description of the default, and meaning.
nb::list setting_rows() {
  nb::list rows;
  for (const SettingRow &row : setting_table())
    rows.append(nb::make_tuple(row.name, row.field, row.hint(), row.romio, row.variable(), row.unset, row.meaning));
  return rows;
}

nb::dict values_of(const Settings &settings) {
  nb::dict values;
  for (const SettingRow &row : setting_table()) values[nb::cast(row.field)] = to_python(row.value(settings));
  return values;
}

nb::dict origins_of(const Settings &settings) {
  nb::dict found;
  for (const SettingRow &row : setting_table()) found[nb::cast(row.field)] = row.origin(settings);
  return found;
}

constexpr std::pair<const char *, double Cost::*> TERMS[] = {{"merge", &Cost::merge},
                                                             {"messages", &Cost::messages},
                                                             {"transfer", &Cost::transfer},
                                                             {"copy", &Cost::copy},
                                                             {"target_latency", &Cost::target_latency},
                                                             {"target_transfer", &Cost::target_transfer},
                                                             {"hidden", &Cost::hidden}};

nb::dict terms_of(const Cost &cost) {
  nb::dict terms;
  for (const auto &[name, term] : TERMS) terms[name] = cost.*term;
  return terms;
}

void bind_results(nb::module_ &module) {
  nb::class_<Cost> cost(module, "Cost");
  for (const auto &[name, term] : TERMS) cost.def_ro(name, term);
  cost.def_prop_ro("terms", &terms_of).def_prop_ro("total", &Cost::total);
  nb::class_<Choice>(module, "Choice")
      .def_ro("rank", &Choice::rank)
      .def_prop_ro("node", [](const Choice &choice) { return choice.chosen.node; })
      .def_prop_ro("tier", [](const Choice &choice) { return choice.chosen.tier; })
      .def_ro("bytes", &Choice::bytes)
      .def_prop_ro("cost", [](const Choice &choice) { return choice.chosen.cost; });
  nb::class_<Placed>(module, "Placement")
      .def_prop_ro("choices", [](const Placed &placed) { return placed.placement.choices; })
      .def_prop_ro("seconds", [](const Placed &placed) { return placed.placement.seconds; })
      .def_prop_ro("slowest", [](const Placed &placed) { return placed.placement.slowest; })
      .def_prop_ro("merged", [](const Placed &placed) { return placed.placement.merged; })
      .def_prop_ro("is_least", [](const Placed &placed) { return placed.placement.is_least; })
      .def_prop_ro("notes", [](const Placed &placed) { return placed.placement.notes; })
      .def(
          "explain",
          [](const Placed &placed, std::size_t max_domains) {
            return explain(placed.placement, placed.machine, placed.options, max_domains);
          },
          nb::arg("max_domains") = 1);
}

void bind_settings(nb::module_ &module) {
  nb::class_<PlacementOptions>(module, "PlacementOptions")
      .def(
          "__init__",
          [](PlacementOptions *made, std::uint64_t buffer_bytes, std::uint32_t buffers, int persistence,
             const std::string &tier, bool merged, const std::vector<std::uint32_t> &max_on_node) {
            const PlacementOptions options{buffer_bytes, buffers, static_cast<Persistence>(persistence),
                                           tier,         merged,  max_on_node};
            if (buffer_bytes < 1 || buffers < 1)
              throw InputError(std::to_string(buffers) + " buffers of " + std::to_string(buffer_bytes) +
                               " bytes: both numbers must be at least 1");
            new (made) PlacementOptions(options);
          },
          nb::arg("buffer_bytes") = 16U << 20, nb::arg("buffers") = 2, nb::arg("persistence") = 0, nb::arg("tier") = "",
          nb::arg("merged") = true, nb::arg("max_on_node") = std::vector<std::uint32_t>())
      .def_prop_ro("persistence", [](const PlacementOptions &options) { return static_cast<int>(options.persistence); })
      .def_ro("max_on_node", &PlacementOptions::max_on_node)
      .def(
          "sending_merged",
          [](PlacementOptions options, bool merged) {
            options.merged = merged;
            return options;
          },
          nb::arg("merged"));
  nb::class_<Settings>(module, "Settings")
      .def_prop_ro("values", &values_of)
      .def_prop_ro("origins", &origins_of)
      .def(
          "placement_options",
          [](const Settings &settings, const std::vector<std::string> &hosts) {
            return placement_options(settings, hosts);
          },
          nb::arg("hosts"));
  module.def("settings", &read_settings, nb::arg("arguments"), nb::arg("hints"), nb::arg("environment"));
  module.def("setting_rows", &setting_rows);
}

// Parses a text that describes a node. Returns two values: a list of tiers, and a pair with the latency and the write
// rate of the target. Each tier is a tuple: name, latency, rate of filling, rate of emptying, persistence, holds_files,
// room and origin. The second value is None if the text describes no target.
nb::tuple parse_node_of(const std::string &text, const std::string &file) {
  const NodeDescription node = parse_node(text, file);
  nb::list tiers;
  for (const NodeTier &each : node.tiers)
    tiers.append(nb::make_tuple(each.tier.name, each.tier.latency_seconds, each.tier.fill_bytes_per_second,
                                each.tier.empty_bytes_per_second, static_cast<int>(each.tier.persistence),
                                each.tier.holds_files, each.room_bytes, each.origin));
  nb::object target = nb::none();
  if (node.target) target = nb::make_tuple(node.target->write.latency_seconds, node.target->write.bytes_per_second);
  return nb::make_tuple(tiers, target);
}

void bind_placement(nb::module_ &module) {
  bind_results(module);
  bind_settings(module);
  module.def("place", &place_all, nb::arg("machine"), nb::arg("tallies"), nb::arg("domains"), nb::arg("options"));
  module.def("place_best", &place_best_of, nb::arg("machine"), nb::arg("tallies"), nb::arg("domains"),
             nb::arg("options"), nb::arg("try_both"));
  module.def("predict", &predict_of, nb::arg("machine"), nb::arg("tallies"), nb::arg("options"), nb::arg("ranks"),
             nb::arg("tiers"));
  module.def("parse_node", &parse_node_of, nb::arg("text"), nb::arg("file"));
  module.def("text_of_this_node", &text_of_this_node, nb::arg("text"), nb::arg("file"), nb::arg("target"));
  module.def(
      "rank_places", [](const std::string &text, const std::string &file) { return parse_rank_places(text, file); },
      nb::arg("text"), nb::arg("file"));
}

}  // namespace

}  // namespace outcrop

NB_MODULE(_aggregate, module) {
  module.doc() = "The compiled library of aggregation.";
  outcrop::register_errors();
  outcrop::bind_extents(module);
  outcrop::bind_plain_runs(module);
  outcrop::bind_plan(module);
  outcrop::bind_file(module);
  outcrop::bind_placement(module);
}
