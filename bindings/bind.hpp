// One function per part of the module; module.cpp calls them.
#pragma once

#include <nanobind/nanobind.h>

namespace outcrop {

void bind_storage(nanobind::module_ &module);
void bind_exec(nanobind::module_ &module);
void bind_meters(nanobind::module_ &module);
void bind_arrays(nanobind::module_ &module);
void bind_stream(nanobind::module_ &module);
void bind_aggregate(nanobind::module_ &module);
void bind_aggregate_placement(nanobind::module_ &module);

}  // namespace outcrop
