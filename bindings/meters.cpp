// This file gives Python access to the measurements of the core: the memory of this machine, the speed of memory and
// storage, and the benchmark STREAM.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "outcrop/base/error.hpp"
#include "outcrop/exec/meters.hpp"
#include "outcrop/exec/topology.hpp"
#include "outcrop/storage/mapping.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

nb::list nodes_of(const std::string &topology) {
  nb::list result;
  for (const MemoryNode &node : memory_nodes(topology))
    result.append(nb::make_tuple(node.os_index, node.bytes, node.kind, node.processors, node.read_bytes_per_second,
                                 node.write_bytes_per_second, node.latency_seconds));
  return result;
}

std::unique_ptr<MemoryMeter> make_meter(unsigned threads, std::size_t array_bytes, const std::vector<unsigned> &nodes) {
  const nb::gil_scoped_release release;
  return std::make_unique<MemoryMeter>(place_threads(threads, Bind::automatic), array_bytes, nodes);
}

// The result of a measurement: the number of moved bytes, the number of requests, and the time in seconds.
using Result = std::tuple<std::uint64_t, std::uint64_t, double>;

Result moved_by_store(Store &store, bool write, bool random, bool flush, std::size_t request_bytes, std::size_t depth,
                      std::uint64_t span_bytes, std::uint64_t total_bytes, double seconds_most) {
  const Moved moved =
      measure_transfers(store, {write, random, flush, request_bytes, depth, span_bytes, total_bytes, seconds_most});
  return {moved.bytes, moved.requests, moved.seconds};
}

Result moved_by_threads(const std::string &path, bool mapped, bool write, bool random, bool flush,
                        std::size_t request_bytes, std::size_t depth, std::uint64_t span_bytes,
                        std::uint64_t total_bytes, double seconds_most) {
  const Moved moved = measure_threads(
      path, mapped, {write, random, flush, request_bytes, depth, span_bytes, total_bytes, seconds_most});
  return {moved.bytes, moved.requests, moved.seconds};
}

using Doubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<double> all(const Doubles &array) { return {array.data(), array.size()}; }

StreamFlush to_flush(const std::string &name) {
  if (name == "none") return StreamFlush::none;
  if (name == "individual") return StreamFlush::individual;
  if (name == "collective") return StreamFlush::collective;
  throw InputError("no such way to flush: ", name);
}

std::pair<double, double> run_stream(Stream &stream, const std::string &loop, const Doubles &first,
                                     const Doubles &second, const Doubles &result, const std::string &flush,
                                     const Mapping *mapping) {
  const StreamSeconds seconds =
      stream.run(find_stream_loop(loop), all(first), all(second), all(result), to_flush(flush), mapping);
  return {seconds.loop, seconds.flush};
}

}  // namespace

void bind_meters(nb::module_ &module) {
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  module.def("memory_nodes", &nodes_of, nb::arg("topology") = "");
  module.def("is_this_system", &is_this_system);
  nb::class_<MemoryMeter>(module, "MemoryMeter")
      .def(nb::new_(&make_meter), nb::arg("threads"), nb::arg("array_bytes"), nb::arg("nodes"))
      .def("bandwidth", &MemoryMeter::bandwidth, nb::arg("loop"), nb::arg("repeats"), unlocked)
      .def("random_bandwidth", &MemoryMeter::random_bandwidth, nb::arg("write"), unlocked)
      .def("latency", &MemoryMeter::latency, unlocked);
  module.def("measure_transfers", &moved_by_store, nb::arg("store"), nb::kw_only(), nb::arg("write"), nb::arg("random"),
             nb::arg("flush"), nb::arg("request_bytes"), nb::arg("depth"), nb::arg("span_bytes"),
             nb::arg("total_bytes"), nb::arg("seconds_most"), unlocked);
  module.def("measure_threads", &moved_by_threads, nb::arg("path"), nb::kw_only(), nb::arg("mapped"), nb::arg("write"),
             nb::arg("random"), nb::arg("flush"), nb::arg("request_bytes"), nb::arg("depth"), nb::arg("span_bytes"),
             nb::arg("total_bytes"), nb::arg("seconds_most"), unlocked);
  nb::class_<Stream>(module, "Stream")
      .def(nb::new_([](unsigned threads, bool may_bind) {
             return new Stream(place_threads(threads, may_bind ? Bind::automatic : Bind::none));
           }),
           nb::arg("threads"), nb::arg("may_bind"))
      .def(
          "fill", [](Stream &stream, const Doubles &values, double value) { stream.fill(all(values), value); },
          nb::arg("values"), nb::arg("value"), unlocked)
      .def(
          "holds", [](Stream &stream, const Doubles &values, double value) { return stream.holds(all(values), value); },
          nb::arg("values"), nb::arg("value"), unlocked)
      .def("run", &run_stream, nb::arg("loop"), nb::arg("first"), nb::arg("second"), nb::arg("result"),
           nb::arg("flush"), nb::arg("mapping").none(), unlocked)
      .def_static(
          "flushed_at_once", [](const Mapping &mapping) { return Stream::flushed_at_once(mapping) * sizeof(double); },
          nb::arg("mapping"));
}

}  // namespace outcrop
