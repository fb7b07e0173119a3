// This file defines the extension module _core. The functions with names bind_* in the other files define the parts of
// the module.
#include <nanobind/nanobind.h>

#include "shared.hpp"

namespace outcrop {
void bind_storage(nanobind::module_ &module);
void bind_exec(nanobind::module_ &module);
void bind_meters(nanobind::module_ &module);
}  // namespace outcrop

NB_MODULE(_core, module) {
  module.doc() = "The compiled core: storage and execution.";
  outcrop::register_errors();
  outcrop::bind_storage(module);
  outcrop::bind_exec(module);
  outcrop::bind_meters(module);
}
