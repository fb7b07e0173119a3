/* The C interface between aggregation and the library that moves bytes between ranks.

       aggregation ──► struct outcrop_transport ──► MPI (mpi_transport.cpp; only files mpi_* include mpi.h)
                                               └──► threads of one process (thread_transport.cpp), for tests

   Each MPI library has its own binary interface, so the files that include mpi.h must be compiled against the MPI
   library in use. The interface is a table of functions and not a class, so that no other file must be compiled again.
   The files mpi_* can be compiled without the rest of the project, because this header includes no other header of the
   project.

   Functions return 0. If the transport has failed, they return another number, and `error` describes the failure in one
   line. After a failure, the caller may call only `error`, `abandon` and `free`. Only one thread at a time may call the
   functions. All ranks must call the collective functions in the same order. Sizes are in bytes and may exceed 2 GiB.
   */
#ifndef OUTCROP_AGGREGATE_TRANSPORT_H
#define OUTCROP_AGGREGATE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of a transfer that has begun. The value 0 means no transfer. */
typedef uint64_t outcrop_request;

struct outcrop_transport {
  void *self;
  int rank;       /* the rank of this process */
  int size;       /* the number of ranks */
  int node;       /* the lowest rank on this rank's node */
  char host[256]; /* the name of the node, with a 0 at its end */
  char name[128]; /* name and version of the library that moves the bytes: "Open MPI v4.1.4", "threads" */

  /* These functions begin to send or receive a message. Messages from one rank to another with the same tag (0 to
     32767) arrive in the order in which they were sent. The receiver must pass the same size as the sender. */
  int (*send)(void *self, const void *data, size_t bytes, int to, int tag, outcrop_request *request);
  int (*receive)(void *self, void *data, size_t bytes, int from, int tag, outcrop_request *request);

  /* `wait` returns when all `count` requests are finished. `test` does not wait, and sets `done` to 1 if all requests
     are finished. Both functions set finished requests to 0. */
  int (*wait)(void *self, outcrop_request *requests, size_t count);
  int (*test)(void *self, outcrop_request *requests, size_t count, int *done);

  /* Collective. Each rank passes `bytes` bytes in `mine`. Stores the bytes of all ranks in `all`, in the order of
     ranks. */
  int (*gather_all)(void *self, const void *mine, size_t bytes, void *all);
  /* Collective. Does the same as gather_all, but rank r passes `sizes[r]` bytes. All ranks pass the same `sizes`. */
  int (*gather_all_sizes)(void *self, const void *mine, const uint64_t *sizes, void *all);
  /* Collective. Returns when all ranks have called this function. */
  int (*barrier)(void *self);

  /* Not collective. Ends all transfers of this rank after a failure. Waits a short time for transfers in progress.
     Returns 1 if a transfer may still use memory that the caller has passed. In this case, the caller must never free
     the memory. */
  int (*abandon)(void *self);

  /* Returns a text that describes the last failure in one line, with the rank. The text is valid until the next call of
     a function of this transport. */
  const char *(*error)(void *self);
  /* Frees all resources of the transport. With MPI, this function is collective. No transfer may be in progress. */
  void (*free)(void *self);

  /* The caller may set this limit, in seconds. A call that waits longer for other ranks fails. The default, 0, means no
     limit. */
  double seconds_most;
};

/* --- the transport over MPI (mpi_transport.cpp) --------------------------------------------------------------------

   The declarations of these functions do not need mpi.h. The functions can be compiled against any MPI. CMake compiles
   them for the library of C and Fortran programs. Python compiles them when a communicator is first used. */

/* Collective over an intracommunicator, which is duplicated. `communicator` is the address of an MPI_Comm. A message
   that is longer than `chunk_bytes` is cut into chunks of this size. The maximum is 1 GiB, and 0 means this maximum.

   Returns 0 and stores the new transport in `made`. The transport's function `free` frees the transport. After an
   error, returns 1 and stores one line in `error`. The line has at most `error_bytes` bytes, including the 0 at its
   end. */
int outcrop_open_mpi_transport(const void *communicator, size_t chunk_bytes, struct outcrop_transport **made,
                               char *error, size_t error_bytes);

/* Collective over the ranks of a transport of outcrop_open_mpi_transport. No message may be under way. Tests one-sided
   communication (RMA) on all ranks. If the test succeeds, receivers fetch all later messages, except short messages,
   from a window of the sender. The window of each rank has 8 slots for pieces of messages. A slot has `slot_bytes`
   bytes; the value 0 means 1 MiB.

   Returns 0 if one-sided communication works. Returns 1 on all ranks if it does not work. The transport then stays
   unchanged, and `text` names the rank and the error. Returns 2 if the transport has failed. If a call of MPI never
   returns, the process prints a line and ends after three times `seconds_most` seconds (class Deadline in
   mpi_one_sided.hpp). */
int outcrop_use_one_sided(struct outcrop_transport *transport, size_t slot_bytes, double seconds_most, char *text,
                          size_t text_bytes);

#ifdef __cplusplus
}

#include <cstddef>
#include <exception>
#include <span>

namespace outcrop::aggregate {

/// Fills the table with functions. Each function of the table calls the member function of `ranks` with the same name.
/// If the member function throws an exception, the transport has failed. The function of the table then passes the text
/// of the exception to `fail`, and returns 1. `error` calls `failure`, which returns this text. `free` calls `close`.
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
