// Functions that aggregate.cpp and aggregate_placement.cpp share.
#pragma once

#include <nanobind/nanobind.h>

#include "outcrop/aggregate/placement/machine.hpp"

namespace outcrop {

template <typename Value>
Value get(nanobind::handle object, const char *name) {
  return nanobind::cast<Value>(object.attr(name));
}

/// Returns an object that reads distances from the rows of a Python object. The Python object must exist while the
/// distances are used. While the object reads a row, it holds the GIL.
aggregate::Distances to_distances(nanobind::handle python);

/// Binds the functions of placement. aggregate.cpp binds all other functions.
void bind_placement(nanobind::module_ &module);

}  // namespace outcrop
