// Conversion only: what memory there is, and how fast memory and storage are.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bind.hpp"
#include "outcrop/exec/memory_meter.hpp"
#include "outcrop/exec/placement.hpp"
#include "outcrop/exec/topology.hpp"
#include "outcrop/storage/meter.hpp"

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

// Bytes, requests, seconds.
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
}

}  // namespace outcrop
