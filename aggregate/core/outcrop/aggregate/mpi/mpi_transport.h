/* The transport over an MPI communicator.

   This header has a C interface of two functions, and does not include mpi.h. So mpi_transport.cpp can be compiled
   against any MPI: CMake compiles it for the library of C and Fortran programs, and Python compiles it when a
   communicator is first used. */
#ifndef OUTCROP_AGGREGATE_MPI_TRANSPORT_H
#define OUTCROP_AGGREGATE_MPI_TRANSPORT_H

#include <stddef.h>

#include "outcrop/aggregate/transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over an intracommunicator, which is duplicated. `communicator` is the address of an MPI_Comm. A message
   that is longer than `chunk_bytes` is cut into chunks of this size. 0 means 1 GiB, which is also the maximum.

   Returns 0 and stores the new transport in `made`. The transport's function `free` frees the transport. After an
   error, returns 1 and stores one line in `error`. The line has at most `error_bytes` bytes, including the 0 at its
   end. */
int outcrop_open_mpi_transport(const void *communicator, size_t chunk_bytes, struct outcrop_transport **made,
                               char *error, size_t error_bytes);

/* Collective over the ranks of a transport of outcrop_open_mpi_transport. No message may be under way. Tests one-sided
   communication (RMA) on all ranks. If it works, receivers from now on fetch all messages except for short ones from
   windows of the senders. The window of each rank has 8 slots of `slot_bytes` for pieces of messages. 0 means 1 MiB.

   Returns 0 if one-sided communication works. Returns 1 on all ranks if it does not work; then the transport stays as
   before, and `text` names the rank and the error. Returns 2 if the transport has failed. If MPI hangs, the process
   prints a line and ends after three times `seconds_most`: see Deadline in mpi_one_sided.hpp. */
int outcrop_use_one_sided(struct outcrop_transport *transport, size_t slot_bytes, double seconds_most, char *text,
                          size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif
