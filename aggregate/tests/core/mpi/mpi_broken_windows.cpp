#include "mpi_broken_windows.hpp"

#include <unistd.h>

#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"

namespace {

using outcrop::aggregate::Broken;

Broken broken = Broken::nothing;
char never_comes = 0;

bool is_last() {
  int rank = 0, size = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  return rank + 1 == size;
}

}  // namespace

void outcrop::aggregate::break_windows(Broken how) { broken = how; }

extern "C" {

int MPI_Win_allocate(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm communicator, void *memory, MPI_Win *window) {
  if (broken == Broken::making) return MPI_ERR_NO_MEM;
  while (broken == Broken::hanging && is_last()) pause();
  return PMPI_Win_allocate(bytes, unit, info, communicator, memory, window);
}

int MPI_Win_lock_all(int assertion, MPI_Win window) {
  if (broken == Broken::opening_at_last_rank && is_last()) return MPI_ERR_OTHER;
  return PMPI_Win_lock_all(assertion, window);
}

int MPI_Rget(void *target, int count, MPI_Datatype type, int rank, MPI_Aint at, int count_there,
             MPI_Datatype type_there, MPI_Win window, MPI_Request *request) {
  if (broken == Broken::never_ending) return PMPI_Irecv(&never_comes, 1, MPI_BYTE, 0, 77, MPI_COMM_SELF, request);
  const MPI_Aint wrong = broken == Broken::wrong_bytes && count > 1 ? 1 : 0;
  return PMPI_Rget(target, count - static_cast<int>(wrong), type, rank, at + wrong,
                   count_there - static_cast<int>(wrong), type_there, window, request);
}
}
