// The parts of the module, one function each, called by module.cpp; and the memory of Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>

namespace outcrop {

void bind_storage(nanobind::module_ &module);
void bind_exec(nanobind::module_ &module);
void bind_meters(nanobind::module_ &module);
void bind_arrays(nanobind::module_ &module);
void bind_aggregate(nanobind::module_ &module);
void bind_aggregate_placement(nanobind::module_ &module);

/// The contiguous bytes of a Python object, never a copy. The object keeps them in place while this exists. Raises BufferError
/// or ValueError if it cannot.
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
