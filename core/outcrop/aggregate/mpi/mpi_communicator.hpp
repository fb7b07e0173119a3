// A communicator of our own.
#pragma once

#include "outcrop/aggregate/mpi/mpi_calls.hpp"

namespace outcrop::aggregate {

/// Freed, which is collective, unless it is released.
class Communicator {
 public:
  Communicator() = default;
  /// Collective: a duplicate.
  explicit Communicator(MPI_Comm original) { check(MPI_Comm_dup(original, &value), "duplicating a communicator"); }
  ~Communicator() {
    if (value != MPI_COMM_NULL) MPI_Comm_free(&value);
  }
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  void release() { value = MPI_COMM_NULL; }
  MPI_Comm value = MPI_COMM_NULL;
};

}  // namespace outcrop::aggregate
