// Conversion only: aggregation, for Python. Whatever may wait for other ranks or for storage does so without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
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

#include "aggregate_machine.hpp"
#include "bind.hpp"
#include "buffer.hpp"
#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/placement/elect_by_cost.hpp"
#include "outcrop/aggregate/placement/explain.hpp"
#include "outcrop/aggregate/placement/staging.hpp"
#include "outcrop/aggregate/plan.hpp"
#include "outcrop/aggregate/sinks/node_files.hpp"
#include "outcrop/aggregate/steps/runs.hpp"
#include "outcrop/aggregate/transport/thread_transport.hpp"
#include "outcrop/base/error.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using namespace aggregate;

using Sizes = std::vector<std::uint64_t>;

// A plan with what it was made of. Without MPI it has a transport of its own, of one rank.
struct Planned {
  std::unique_ptr<ThreadRanks> alone;
  std::shared_ptr<Placed> placed;
  std::optional<Plan> plan;

  const PlanSummary &summary() const { return plan->summary(); }
};

// Memory stays as it is until the operation, which is destroyed first, is over.
class Request {
 public:
  Request(std::list<Buffer> memory, Operation operation)
      : memory_(std::move(memory)), operation_(std::move(operation)) {}
  Request(const Request &) = delete;
  Request &operator=(const Request &) = delete;
  ~Request() {
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

std::unique_ptr<Planned> make_plan(std::uintptr_t transport, Variables variables, nb::handle machine, nb::handle wishes,
                                   PlanOptions options, nb::handle media) {
  for (const nb::handle each : media) options.media.push_back(to_medium(each));
  auto planned = std::make_unique<Planned>();
  planned->placed = std::make_shared<Placed>(Placed{to_machine(machine), to_wishes(wishes), {}});
  options.elect = elect_by_cost(planned->placed, options.aggregators > 0);
  {
    const nb::gil_scoped_release release;
    if (transport == 0) planned->alone = std::make_unique<ThreadRanks>(1);
    outcrop_transport &used =
        planned->alone ? planned->alone->transport(0) : *reinterpret_cast<outcrop_transport *>(transport);
    planned->plan = Plan::make(used, Declaration{std::move(variables)}, options);
  }
  planned->placed->machine.distances = nullptr;  // what it refers to may go now
  return planned;
}

double predicted_seconds(const Planned &planned) { return planned.placed->placement.seconds; }

// Chosen tier or None, then seconds to write, wait for the drain and read back once: straight, then staged; then all of it
// in words.
nb::tuple staging(const Planned &planned, nb::handle habits) {
  const Machine &machine = planned.placed->machine;
  const Staging made = decide_staging(
      machine, planned.placed->placement,
      {get<double>(habits, "seconds_between"), get<double>(habits, "reads_back"), get<bool>(habits, "durable"),
       static_cast<Persistence>(nb::cast<int>(habits.attr("persistence"))), get<std::uint64_t>(habits, "room_bytes")});
  const auto seconds = [](const StepForecast &forecast) {
    return nb::make_tuple(forecast.write, forecast.wait, forecast.read);
  };
  nb::object tier = nb::none(), staged = nb::none();
  if (made.chosen) {
    const StageOption &chosen = made.options[*made.chosen];
    tier = nb::cast(chosen.tier);
    staged = seconds(chosen.forecast);
  }
  return nb::make_tuple(tier, seconds(made.straight), staged, explain(made, machine));
}

std::string explain_plan(const Planned &planned, std::size_t domains_most) {
  return explain(planned.placed->placement, planned.placed->machine, planned.placed->wishes, domains_most);
}

Path to_path(const std::string &name) {
  if (name == "buffered") return Path::buffered;
  if (name == "direct") return Path::direct;
  if (name != "automatic") throw InputError("path '" + name + "' must be automatic, buffered or direct");
  return Path::automatic;
}

using AggregateFile = aggregate::File;

// `python` has the fields of FileOptions, `way` for its path.
FileOptions to_options(nb::handle python) {
  FileOptions options;
  options.durable = get<bool>(python, "durable");
  options.path = to_path(get<std::string>(python, "way"));
  options.size_bytes = get<std::uint64_t>(python, "size_bytes");
  options.stage_folder = get<std::string>(python, "stage_folder");
  options.stage_bytes = get<std::uint64_t>(python, "stage_bytes");
  options.settle_folders = get<std::vector<std::string>>(python, "settle_folders");
  options.node_files = get<bool>(python, "node_files");
  return options;
}

std::unique_ptr<AggregateFile> create(const Planned &planned, const std::string &path, nb::handle python) {
  const FileOptions options = to_options(python);
  const nb::gil_scoped_release release;
  return std::make_unique<AggregateFile>(AggregateFile::create(*planned.plan, path, options));
}

std::unique_ptr<AggregateFile> open(const Planned &planned, const std::string &path, bool writable, nb::handle python) {
  const FileOptions options = to_options(python);
  const nb::gil_scoped_release release;
  return std::make_unique<AggregateFile>(AggregateFile::open(*planned.plan, path, writable, options));
}

template <typename Byte>
std::vector<std::span<Byte>> spans_of(const std::list<Buffer> &memory) {
  std::vector<std::span<Byte>> spans;
  for (const Buffer &buffer : memory) spans.emplace_back(buffer.data(), buffer.size());
  return spans;
}

std::list<Buffer> to_memory(nb::handle arrays, bool writable) {
  std::list<Buffer> memory;
  for (const nb::handle array : arrays) memory.emplace_back(array, writable);
  return memory;
}

std::unique_ptr<Request> begin_write(AggregateFile &file, nb::handle arrays, std::uint64_t base,
                                     const std::string &problem) {
  std::list<Buffer> memory = to_memory(arrays, false);
  const auto spans = spans_of<const std::byte>(memory);
  Operation operation;
  {
    const nb::gil_scoped_release release;
    operation = file.begin_write(spans, base, problem);
  }
  return std::make_unique<Request>(std::move(memory), std::move(operation));
}

std::unique_ptr<Request> begin_read(AggregateFile &file, nb::handle arrays, std::uint64_t base,
                                    const std::string &problem) {
  std::list<Buffer> memory = to_memory(arrays, true);
  const auto spans = spans_of<std::byte>(memory);
  Operation operation;
  {
    const nb::gil_scoped_release release;
    operation = file.begin_read(spans, base, problem);
  }
  return std::make_unique<Request>(std::move(memory), std::move(operation));
}

Timing write(AggregateFile &file, nb::handle arrays, std::uint64_t base, const std::string &problem) {
  const std::list<Buffer> memory = to_memory(arrays, false);
  const auto spans = spans_of<const std::byte>(memory);
  const nb::gil_scoped_release release;
  return file.write(spans, base, problem);
}

Timing read(AggregateFile &file, nb::handle arrays, std::uint64_t base, const std::string &problem) {
  const std::list<Buffer> memory = to_memory(arrays, true);
  const auto spans = spans_of<std::byte>(memory);
  const nb::gil_scoped_release release;
  return file.read(spans, base, problem);
}

// A rank's own runs by plain calls, one for each: what the benchmark compares with.
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
  nb::class_<Extent>(module, "AggregateExtent")
      .def_prop_ro("nbytes", &Extent::bytes)
      .def_prop_ro("memory_nbytes", &Extent::memory_bytes)
      .def_prop_ro("blocks", &Extent::blocks)
      .def_prop_ro("begin", [](const Extent &extent) { return extent.hull().begin; })
      .def_prop_ro("end", [](const Extent &extent) { return extent.hull().end; })
      .def(
          "__eq__", [](const Extent &extent, const Extent &other) { return extent == other; }, nb::is_operator())
      .def("__repr__", &text_of);
  module.def("aggregate_contiguous", &contiguous, nb::arg("file_offset"), nb::arg("nbytes"), nb::arg("memory_offset"));
  module.def("aggregate_strided", &make_strided, nb::arg("file_offset"), nb::arg("count"), nb::arg("block_bytes"),
             nb::arg("file_stride_bytes"), nb::arg("memory_stride_bytes"), nb::arg("memory_offset"));
  module.def(
      "aggregate_subarray",
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
  nb::class_<PlanOptions>(module, "AggregateOptions")
      .def(nb::init<>())
      .def_rw("buffer_bytes", &PlanOptions::buffer_bytes)
      .def_rw("buffers", &PlanOptions::buffers)
      .def_rw("aggregators", &PlanOptions::aggregators)
      .def_rw("aggregators_on_node", &PlanOptions::aggregators_on_node)
      .def_rw("own_run_bytes", &PlanOptions::own_run_bytes)
      .def_ro_static("OWN_WHERE_IT_PAYS", &own_where_it_pays)
      .def_rw("reading_only", &PlanOptions::reading_only);
  nb::class_<Planned>(module, "AggregatePlan")
      .def(nb::new_(&make_plan), nb::arg("transport"), nb::arg("variables"), nb::arg("machine"), nb::arg("wishes"),
           nb::arg("options"), nb::arg("media"))
      .def_prop_ro("nbytes", [](const Planned &planned) { return planned.summary().bytes; })
      .def_prop_ro("begin", [](const Planned &planned) { return planned.summary().hull.begin; })
      .def_prop_ro("end", [](const Planned &planned) { return planned.summary().hull.end; })
      .def_prop_ro("aggregators", [](const Planned &planned) { return planned.summary().aggregators; })
      .def_prop_ro("domain_nbytes", [](const Planned &planned) { return planned.summary().domain_bytes; })
      .def_prop_ro("buffer_bytes", [](const Planned &planned) { return planned.summary().buffer_bytes; })
      .def_prop_ro("buffers", [](const Planned &planned) { return planned.summary().buffers; })
      .def_prop_ro("own", [](const Planned &planned) { return planned.summary().own; })
      .def_prop_ro("tiers", [](const Planned &planned) { return planned.summary().tiers; })
      .def_prop_ro("places", [](const Planned &planned) { return planned.summary().places; })
      .def_prop_ro("notes", [](const Planned &planned) { return planned.summary().notes; })
      .def_prop_ro("memory_nbytes",
                   [](const Planned &planned) {
                     const std::span<const std::uint64_t> bytes = planned.plan->memory_bytes();
                     return Sizes(bytes.begin(), bytes.end());
                   })
      .def_prop_ro("seconds", &predicted_seconds)
      .def("staging", &staging, nb::arg("habits"))
      .def("explain", &explain_plan, nb::arg("domains_most"));
}

void bind_file(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Timing>(module, "AggregateTiming")
      .def_ro("seconds", &Timing::seconds)
      .def_ro("seconds_copying", &Timing::seconds_copying)
      .def_ro("seconds_filling", &Timing::seconds_filling)
      .def_ro("seconds_storage", &Timing::seconds_storage)
      .def_ro("seconds_messages", &Timing::seconds_messages)
      .def_ro("bytes_storage", &Timing::bytes_storage);
  nb::class_<Request>(module, "AggregateRequest")
      .def("test", &Request::test, unlocked)
      .def("wait", &Request::wait, unlocked)
      .def_prop_ro("timing", &Request::timing);
  nb::class_<AggregateFile>(module, "AggregateFile")
      .def_static("create", &create, nb::arg("plan"), nb::arg("path"), nb::arg("options"), nb::keep_alive<0, 1>())
      .def_static("open", &open, nb::arg("plan"), nb::arg("path"), nb::arg("writable"), nb::arg("options"),
                  nb::keep_alive<0, 1>())
      .def_prop_ro("notes", &AggregateFile::notes)
      .def("begin_write", &begin_write, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"), nb::keep_alive<0, 1>())
      .def("begin_read", &begin_read, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"), nb::keep_alive<0, 1>())
      .def("write", &write, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"))
      .def("read", &read, nb::arg("arrays"), nb::arg("base"), nb::arg("problem"))
      .def("flush", &AggregateFile::flush, unlocked)
      .def("close", &AggregateFile::close, unlocked);
  module.def(
      "aggregate_merge", [](const std::string &index, const std::string &target) { return merge(index, target); },
      nb::arg("index"), nb::arg("target"), unlocked);
}

}  // namespace

void bind_aggregate(nb::module_ &module) {
  bind_extents(module);
  bind_plain_runs(module);
  bind_plan(module);
  bind_file(module);
}

}  // namespace outcrop
