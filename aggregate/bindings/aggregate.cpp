// Python bindings of aggregation. Functions that may wait for other ranks or for storage release the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aggregate.hpp"
#include "outcrop/aggregate/file.hpp"
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

// A plan of the core. If the program does not use MPI, this object also owns a transport with one rank.
struct BoundPlan {
  std::unique_ptr<ThreadRanks> alone;
  std::string library;
  std::optional<PlacedPlan> placed;

  const PlanSummary &summary() const { return placed->plan().summary(); }
};

// An operation, and the memory that the operation uses. The destructor destroys the operation before the memory.
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

using Variables = std::vector<std::vector<Extent>>;

// Converts the facts that Python code has found about the machine to the C++ type MachineSources. The Python object
// must exist until the plan is made, because the core reads distances from this object later.
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

// Collective. Makes a plan. Calls the Python function `find_machine` once, with the settings on which all ranks have
// agreed.
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

// Calls act(spans), and releases the GIL during this call.
template <typename Byte, typename Act>
auto with_spans(const std::list<Buffer> &memory, Act &&act) {
  std::vector<std::span<Byte>> spans;
  for (const Buffer &buffer : memory) spans.emplace_back(buffer.data(), buffer.size());
  const nb::gil_scoped_release release;
  return act(spans);
}

std::unique_ptr<BoundRequest> begin_write(BoundFile &file, nb::handle arrays, std::uint64_t base,
                                          const std::string &problem) {
  std::list<Buffer> memory = to_memory(arrays, false);
  Operation operation = with_spans<const std::byte>(
      memory, [&](const auto &spans) { return file.value.begin_write(spans, base, problem); });
  return std::make_unique<BoundRequest>(std::move(memory), std::move(operation));
}

std::unique_ptr<BoundRequest> begin_read(BoundFile &file, nb::handle arrays, std::uint64_t base,
                                         const std::string &problem) {
  std::list<Buffer> memory = to_memory(arrays, true);
  Operation operation =
      with_spans<std::byte>(memory, [&](const auto &spans) { return file.value.begin_read(spans, base, problem); });
  return std::make_unique<BoundRequest>(std::move(memory), std::move(operation));
}

Timing write(BoundFile &file, nb::handle arrays, std::uint64_t base, const std::string &problem) {
  return with_spans<const std::byte>(to_memory(arrays, false),
                                     [&](const auto &spans) { return file.value.write(spans, base, problem); });
}

Timing read(BoundFile &file, nb::handle arrays, std::uint64_t base, const std::string &problem) {
  return with_spans<std::byte>(to_memory(arrays, true),
                               [&](const auto &spans) { return file.value.read(spans, base, problem); });
}

// Writes or reads each contiguous run of a rank with one plain system call. The benchmark compares aggregation with
// these calls.
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
        throw InputError("variable " + std::to_string(memory.size()) + " is shorter than was declared");
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
      .def("begin_write", &begin_write, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"), nb::keep_alive<0, 1>())
      .def("begin_read", &begin_read, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"), nb::keep_alive<0, 1>())
      .def("write", &write, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"))
      .def("read", &read, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"))
      .def(
          "flush", [](BoundFile &file) { file.value.flush(); }, unlocked)
      .def("close", [](BoundFile &file) { file.value.close(); }, unlocked);
  module.def(
      "merge", [](const std::string &index, const std::string &target) { return merge(index, target); },
      nb::arg("index"), nb::arg("target"), unlocked);
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
