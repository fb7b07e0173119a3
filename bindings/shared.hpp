// The two extension modules _core and _aggregate share the code in this file. The code converts C++ errors to the
// errors of the Python package, and gives access to the memory of Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <exception>

#include "outcrop/base/error.hpp"

namespace outcrop {

inline void raise(const char *name, const std::exception &error) {
  const nanobind::object type = nanobind::module_::import_("outcrop.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

inline void translate(const std::exception_ptr &thrown, void *) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InputError &error) {
    raise("InputError", error);
  } catch (const StorageError &error) {
    raise("StorageError", error);
  } catch (const CorruptionError &error) {
    raise("CorruptionError", error);
  } catch (const CommunicationError &error) {
    raise("CommunicationError", error);
  } catch (const Cancelled &error) {
    raise("InterruptedRun", error);
  }
}

inline void register_errors() { nanobind::register_exception_translator(translate); }

/// Gives access to the contiguous bytes of a Python object without a copy. The bytes stay at the same address until the
/// destructor of `Buffer` runs. Raises BufferError or ValueError if the object has no contiguous bytes.
class Buffer {
 public:
  Buffer(nanobind::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0)
      throw nanobind::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  std::byte *data() const { return static_cast<std::byte *>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_{};
};

}  // namespace outcrop
