// The extension module of the engine. Each part of the module is defined by a function in a separate file.
#include <nanobind/nanobind.h>

#include "shared.hpp"

namespace outcrop {
void bind_storage(nanobind::module_ &module);
void bind_exec(nanobind::module_ &module);
void bind_meters(nanobind::module_ &module);
void bind_arrays(nanobind::module_ &module);
}  // namespace outcrop

NB_MODULE(_core, module) {
  module.doc() = "The compiled core: storage and execution.";
  outcrop::register_errors();
  outcrop::bind_storage(module);
  outcrop::bind_exec(module);
  outcrop::bind_meters(module);
  outcrop::bind_arrays(module);
}
