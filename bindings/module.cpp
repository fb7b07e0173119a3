// The extension module: its parts, and the errors of the core as those of the package.
#include <nanobind/nanobind.h>

#include <exception>

#include "bind.hpp"
#include "outcrop/base/error.hpp"

namespace nb = nanobind;

namespace {

void raise(const char *name, const std::exception &error) {
  const nb::object type = nb::module_::import_("outcrop.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

void translate(const std::exception_ptr &thrown, void *) {
  try {
    std::rethrow_exception(thrown);
  } catch (const outcrop::InputError &error) {
    raise("InputError", error);
  } catch (const outcrop::StorageError &error) {
    raise("StorageError", error);
  } catch (const outcrop::CorruptionError &error) {
    raise("CorruptionError", error);
  } catch (const outcrop::CommunicationError &error) {
    raise("CommunicationError", error);
  } catch (const outcrop::Cancelled &error) {
    raise("InterruptedRun", error);
  }
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The compiled core: storage and execution.";
  nb::register_exception_translator(translate);
  outcrop::bind_storage(module);
  outcrop::bind_exec(module);
  outcrop::bind_meters(module);
  outcrop::bind_arrays(module);
  outcrop::bind_aggregate(module);
  outcrop::bind_aggregate_placement(module);
}
