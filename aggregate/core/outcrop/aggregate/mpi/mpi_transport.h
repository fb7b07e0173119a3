/* The transport over an MPI communicator.

   A C interface of two functions: mpi_transport.cpp is compiled against whatever MPI there is, by CMake for the library
   of C and Fortran programs, and for Python when a communicator is first used. So this header has no mpi.h, either. */
#ifndef OUTCROP_AGGREGATE_MPI_TRANSPORT_H
#define OUTCROP_AGGREGATE_MPI_TRANSPORT_H

#include <stddef.h>

#include "outcrop/aggregate/transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Collective over the intracommunicator at `communicator`, the address of an MPI_Comm, which is duplicated. Longer
   messages are cut into chunks of `chunk_bytes`; 0 means 1 GiB, which is also the most.

   Returns 0 with the new transport in `made`, to be given back by its `free`; otherwise 1 with one line in `error`, of
   at most `error_bytes` with the 0 at its end. */
int outcrop_open_mpi_transport(const void *communicator, size_t chunk_bytes, struct outcrop_transport **made,
                               char *error, size_t error_bytes);

/* Collective over the ranks of a transport that this file has made, when nothing is under way: from now on receivers fetch
   longer messages from windows of the senders (RMA), in pieces of `slot_bytes`, of which each rank has 8; 0 means 1 MiB.
   Before that it is tried between all ranks.

   Returns 0. Or 1, on all ranks, where it did not work: the transport goes on as before, and `text` says at which rank
   what was wrong. Or 2 where the transport has failed. Where MPI hangs, the process ends after three times `seconds_most`
   with a line that says so: see Deadline in mpi_one_sided.hpp. */
int outcrop_use_one_sided(struct outcrop_transport *transport, size_t slot_bytes, double seconds_most, char *text,
                          size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif
