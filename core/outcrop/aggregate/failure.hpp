// The first thing that went wrong in an operation, in a form that can lie in shared memory and be sent.
#pragma once

#include <cstdint>
#include <string>

#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

struct Failure {
  enum Doing : std::int32_t { nothing, write, read, flush, open, create, input };

  Doing doing = nothing;
  std::int32_t rank = 0, error = 0;
  std::uint32_t padding = 0;
  std::uint64_t offset = 0, length = 0;
  char text[160] = {};  ///< of input

  bool happened() const { return doing != nothing; }
  static Failure of(Doing doing, int rank, const StorageError &error);
  static Failure of_input(int rank, const std::string &text);

  /// Throws StorageError or InputError if it happened.
  void raise(const std::string &path) const;
};

}  // namespace outcrop::aggregate
