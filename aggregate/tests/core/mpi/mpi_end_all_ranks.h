/* A function that ends all ranks of a test program after an error was printed.

   The launcher forwards the output of ranks. When a rank calls MPI_Abort, the launcher ends immediately, and output
   that it has not read yet is lost. So the function waits before it calls MPI_Abort. */
#ifndef OUTCROP_TESTS_MPI_END_ALL_RANKS_H
#define OUTCROP_TESTS_MPI_END_ALL_RANKS_H

/* mpi_two_sided.hpp defines the same macros. Either file may be included first. */
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { seconds_to_be_heard = 1 };

static inline void end_all_ranks(void) {
  fflush(NULL);
  sleep(seconds_to_be_heard);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

#endif
