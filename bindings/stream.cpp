// Conversion only: the loops of STREAM.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "bind.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/exec/placement.hpp"
#include "outcrop/exec/stream.hpp"
#include "outcrop/storage/mapping.hpp"

namespace nb = nanobind;

namespace outcrop {
namespace {

using Doubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<double> all(const Doubles &array) { return {array.data(), array.size()}; }

StreamFlush to_flush(const std::string &name) {
  if (name == "none") return StreamFlush::none;
  if (name == "individual") return StreamFlush::individual;
  if (name == "collective") return StreamFlush::collective;
  throw InputError("no such way to flush: " + name);
}

std::pair<double, double> run(Stream &stream, const std::string &loop, const Doubles &first, const Doubles &second,
                              const Doubles &result, const std::string &flush, const Mapping *mapping) {
  const StreamLoop found = find_stream_loop(loop);
  const StreamFlush how = to_flush(flush);
  const nb::gil_scoped_release release;
  const StreamSeconds seconds = stream.run(found, all(first), all(second), all(result), how, mapping);
  return {seconds.loop, seconds.flush};
}

}  // namespace

void bind_stream(nb::module_ &module) {
  nb::class_<Stream>(module, "Stream")
      .def(nb::new_([](unsigned threads, bool may_bind) {
             return new Stream(place_threads(threads, may_bind ? Bind::automatic : Bind::none));
           }),
           nb::arg("threads"), nb::arg("may_bind"))
      .def(
          "fill",
          [](Stream &stream, const Doubles &values, double value) {
            const nb::gil_scoped_release release;
            stream.fill(all(values), value);
          },
          nb::arg("values"), nb::arg("value"))
      .def(
          "holds",
          [](Stream &stream, const Doubles &values, double value) {
            const nb::gil_scoped_release release;
            return stream.holds(all(values), value);
          },
          nb::arg("values"), nb::arg("value"))
      .def("run", &run, nb::arg("loop"), nb::arg("first"), nb::arg("second"), nb::arg("result"), nb::arg("flush"),
           nb::arg("mapping").none())
      .def_static(
          "flushed_at_once", [](const Mapping &mapping) { return Stream::flushed_at_once(mapping) * sizeof(double); },
          nb::arg("mapping"));
}

}  // namespace outcrop
