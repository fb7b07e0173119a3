// Memory of Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>

namespace outcrop {

/// The contiguous bytes of a Python object, kept as they are while this lives; never a copy; anything else raises BufferError or ValueError.
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
