#include "taps.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace nb = nanobind;

namespace outcrop {
namespace {

template <typename Value, typename... Shape>
using Array = nb::ndarray<nb::numpy, Value, nb::c_contig, Shape...>;

template <typename Value>
Value get(nb::handle object, const char *name) {
  return nb::cast<Value>(object.attr(name));
}

std::vector<Cell> to_cells(nb::handle object) {
  const auto cells = get<Array<const std::int64_t, nb::shape<-1, 3>>>(object, "cells");
  std::vector<Cell> result;
  for (std::size_t i = 0; i < cells.shape(0); ++i) result.push_back({cells(i, 0), cells(i, 1), cells(i, 2)});
  return result;
}

Snapshot to_snapshot(nb::handle one) {
  Snapshot result;
  result.field = get<std::size_t>(one, "field");
  result.done = get<long>(one, "step");
  const nb::object box = one.attr("box");
  long *const places[] = {&result.z0, &result.z1, &result.y0, &result.y1, &result.x0, &result.x1};
  for (std::size_t i = 0; i < 6; ++i) *places[i] = nb::cast<long>(box[i / 2][i % 2]);
  result.path = get<std::string>(one, "path");
  result.offset = get<std::uint64_t>(one, "offset_bytes");
  result.direct = get<bool>(one, "direct");
  result.folder = get<int>(one, "folder");
  result.label = get<std::string>(one, "label");
  return result;
}

nb::bytes to_bytes(const std::vector<std::byte> &bytes) { return nb::bytes(bytes.data(), bytes.size()); }

}  // namespace

TapRequests to_requests(nb::handle python) {
  TapRequests result;
  for (nb::handle one : python.attr("injections")) {
    const auto values = get<Array<const std::uint8_t, nb::ndim<1>>>(one, "bytes");
    result.injections.push_back(
        {get<std::size_t>(one, "field"), to_cells(one), reinterpret_cast<const std::byte *>(values.data())});
  }
  for (nb::handle one : python.attr("samples")) {
    const auto values = get<Array<double, nb::ndim<2>>>(one, "values");
    result.samples.push_back({get<std::size_t>(one, "field"), to_cells(one), get<bool>(one, "before"), values.data()});
  }
  for (nb::handle one : python.attr("sums"))
    result.sums.push_back({get<std::size_t>(one, "field"), get<long>(one, "step")});
  for (nb::handle one : python.attr("snapshots")) result.snapshots.push_back(to_snapshot(one));
  const nb::object staging = python.attr("staging");
  result.staging = {get<std::size_t>(staging, "slots"), get<std::size_t>(staging, "slot_bytes")};
  result.only_own = get<bool>(python, "only_own");
  return result;
}

nb::list from_sums(const std::vector<FieldSum> &sums) {
  nb::list result;
  for (const FieldSum &one : sums)
    result.append(nb::make_tuple(to_bytes(one.sum.integer()), one.sum.special(), to_bytes(one.squares.integer()),
                                 one.squares.special(), one.minimum, one.maximum));
  return result;
}

}  // namespace outcrop
