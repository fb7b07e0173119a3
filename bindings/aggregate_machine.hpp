// Machines and wishes of outcrop.aggregate.machine, as the core has them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

#include "outcrop/aggregate/node/medium.hpp"
#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop {

template <typename Value>
using Array = nanobind::ndarray<const Value, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <typename Value>
std::vector<Value> to_vector(const Array<Value> &array) {
  return {array.data(), array.data() + array.size()};
}

template <typename Value>
Value get(nanobind::handle object, const char *name) {
  return nanobind::cast<Value>(object.attr(name));
}

/// Checked by Python. Its distances refer to `python`, which must stay while they are used.
aggregate::Machine to_machine(nanobind::handle python);
aggregate::Wishes to_wishes(nanobind::handle python);
aggregate::Medium to_medium(nanobind::handle python);

}  // namespace outcrop
