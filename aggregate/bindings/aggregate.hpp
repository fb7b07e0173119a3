// What the bindings of aggregation share.
#pragma once

#include <nanobind/nanobind.h>

#include "outcrop/aggregate/placement/machine.hpp"

namespace outcrop {

template <typename Value>
Value get(nanobind::handle object, const char *name) {
  return nanobind::cast<Value>(object.attr(name));
}

/// By the rows of a Python object, which must stay while they are used; called without the GIL.
aggregate::Distances to_distances(nanobind::handle python);

/// Binds placement; the rest of the module is in aggregate.cpp.
void bind_placement(nanobind::module_ &module);

}  // namespace outcrop
