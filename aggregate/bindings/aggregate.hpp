// Functions that both files of aggregation's bindings use.
#pragma once

#include <nanobind/nanobind.h>

#include "outcrop/aggregate/placement/machine.hpp"

namespace outcrop {

template <typename Value>
Value get(nanobind::handle object, const char *name) {
  return nanobind::cast<Value>(object.attr(name));
}

/// Returns distances that read the rows of a Python object. The object must exist while they are used. They take the GIL.
aggregate::Distances to_distances(nanobind::handle python);

/// Binds placement; the rest of the module is in aggregate.cpp.
void bind_placement(nanobind::module_ &module);

}  // namespace outcrop
