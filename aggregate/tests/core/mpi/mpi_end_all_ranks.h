/* How programs of these tests end all ranks after a line about what is wrong.

   The launcher passes on what ranks print; told to end all, it ends at once, and what it has not read by then is lost
   (MPICH's: 11 and 13 of 300 lines). So the line is given time to be heard first. */
#ifndef OUTCROP_TESTS_MPI_END_ALL_RANKS_H
#define OUTCROP_TESTS_MPI_END_ALL_RANKS_H

/* As in mpi_two_sided.hpp, whichever comes first. */
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
