/* The one C interface between aggregation and what carries bytes between ranks.

       aggregation ──► struct outcrop_transport ──► MPI (mpi_transport.cpp; only files mpi_* include mpi.h)
                                               └──► threads of one process (thread_transport.cpp), for tests

   It is a table of functions and not a class, because each MPI has its own binary interface. Only the files that include
   mpi.h are compiled against the MPI in use. This file uses nothing else of the project, so that they need nothing else.

   Functions return 0, or another number when the transport failed; `error` then says what happened in one line. After
   a failure only `error`, `abandon` and `free` may be called. One thread at a time calls them. Collective functions
   (marked so) are called by all ranks in the same order. Sizes are in bytes and may exceed 2 GiB. */
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

  /* Not collective: this rank takes part in nothing any more, as after a failure. Transfers under way get a moment to end.
     Returns 1 when one of them may still use memory that it was given. That memory must then never be freed. */
  int (*abandon)(void *self);

  /* One line about the last failure, with the rank; valid until the next call. */
  const char *(*error)(void *self);
  /* Collective where the transport needs it: gives everything back. Nothing may be under way. */
  void (*free)(void *self);

  /* May be set: calls that wait for other ranks fail after this time. 0, the default, means never. */
  double seconds_most;
};

#ifdef __cplusplus
}

#include <cstddef>
#include <exception>
#include <span>

namespace outcrop::aggregate {

/// Fills in the functions of a table for an object whose class has member functions of the same names. They throw where the
/// transport fails; `fail` keeps the text of the exception for `failure`. `close` is called last.
template <typename Ranks>
void fill_table(outcrop_transport &table, Ranks *ranks) {
  static constexpr auto guard = []<typename Call>(void *self, Call call) noexcept {
    Ranks &own = *static_cast<Ranks *>(self);
    try {
      call(own);
      return 0;
    } catch (const std::exception &error) {
      own.fail(error.what());
      return 1;
    }
  };
  table.self = ranks;
  table.send = [](void *self, const void *data, size_t bytes, int to, int tag, outcrop_request *request) {
    *request = 0;
    return guard(self, [&](Ranks &own) { *request = own.send(static_cast<const std::byte *>(data), bytes, to, tag); });
  };
  table.receive = [](void *self, void *data, size_t bytes, int from, int tag, outcrop_request *request) {
    *request = 0;
    return guard(self, [&](Ranks &own) { *request = own.receive(static_cast<std::byte *>(data), bytes, from, tag); });
  };
  table.wait = [](void *self, outcrop_request *requests, size_t count) {
    return guard(self, [&](Ranks &own) { own.wait({requests, count}); });
  };
  table.test = [](void *self, outcrop_request *requests, size_t count, int *done) {
    return guard(self, [&](Ranks &own) { *done = own.test({requests, count}) ? 1 : 0; });
  };
  table.gather_all = [](void *self, const void *mine, size_t bytes, void *all) {
    return guard(self, [&](Ranks &own) { own.gather_all(mine, bytes, all); });
  };
  table.gather_all_sizes = [](void *self, const void *mine, const uint64_t *sizes, void *all) {
    return guard(self, [&](Ranks &own) { own.gather_all_sizes(mine, sizes, all); });
  };
  table.barrier = [](void *self) { return guard(self, [](Ranks &own) { own.barrier(); }); };
  table.abandon = [](void *self) { return static_cast<Ranks *>(self)->abandon() ? 0 : 1; };
  table.error = [](void *self) { return static_cast<Ranks *>(self)->failure(); };
  table.free = [](void *self) { static_cast<Ranks *>(self)->close(); };
}

}  // namespace outcrop::aggregate
#endif

#endif
