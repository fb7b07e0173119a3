/* The one C interface between aggregation and what carries bytes between ranks.

       aggregation ──► struct outcrop_transport ──► MPI (mpi_transport.cpp; only files mpi_* have mpi.h)
                                               └──► threads of one process (thread_transport.cpp), for tests

   A table of functions rather than a class, because every MPI has a binary interface of its own: the file that
   includes mpi.h is compiled against the MPI at hand, and nothing else of the project is.

   Functions return 0, or another number when the transport failed; `error` then says what happened in one line. After
   a failure only `error` and `free` may be called. One thread at a time calls them. Collective functions (marked so)
   are called by all ranks in the same order. Sizes are in bytes and may exceed 2 GiB. */
#ifndef OUTCROP_AGGREGATE_TRANSPORT_H
#define OUTCROP_AGGREGATE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A transfer that has begun; 0 is none. */
typedef uint64_t outcrop_request;

struct outcrop_transport {
  void *self;
  int rank;       /* of this process */
  int size;       /* ranks there are */
  int node;       /* the lowest rank on this rank's node */
  char host[256]; /* name of the node, ended by 0 */
  char name[128]; /* what carries the bytes, with its version: "Open MPI v4.1.4", "threads" */

  /* Begin to send or receive. Messages between two ranks with one tag (0 to 32767) arrive in the order in which they
     were sent, and are received with the size with which they were sent. */
  int (*send)(void *self, const void *data, size_t bytes, int to, int tag, outcrop_request *request);
  int (*receive)(void *self, void *data, size_t bytes, int from, int tag, outcrop_request *request);

  /* Wait for all of `count` requests, or look (`done` becomes 1 when all are over). Finished ones become 0. */
  int (*wait)(void *self, outcrop_request *requests, size_t count);
  int (*test)(void *self, outcrop_request *requests, size_t count, int *done);

  /* Collective: `all` gets the `bytes` of every rank, in the order of ranks. */
  int (*gather_all)(void *self, const void *mine, size_t bytes, void *all);
  /* Collective: the same with sizes that differ; all ranks pass the same `sizes`, one for each rank. */
  int (*gather_all_sizes)(void *self, const void *mine, const uint64_t *sizes, void *all);
  /* Collective: returns when all ranks have come. */
  int (*barrier)(void *self);

  /* Not collective: this rank takes part in nothing any more, as after a failure. What is under way gets a moment to end.
     1 when something still may use memory that it was given, which then must stay for ever. */
  int (*abandon)(void *self);

  /* One line about the last failure, with the rank; valid until the next call. */
  const char *(*error)(void *self);
  /* Collective where the transport needs it: gives everything back. Nothing may be under way. */
  void (*free)(void *self);

  /* May be set: calls that wait for other ranks fail after so long; 0, as it begins, is never. */
  double seconds_most;
};

#ifdef __cplusplus
}
#endif

#endif
