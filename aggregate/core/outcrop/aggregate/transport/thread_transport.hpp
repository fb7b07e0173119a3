// Ranks that are threads of one process: aggregation without MPI, for tests and for programs with threads of their own.
//
//     ThreadRanks ranks(16, 4);            16 ranks on 4 simulated nodes of 4 ranks each
//     each thread: transport = ranks.transport(rank)
//
// A message lies in a queue between its two ranks, copied, until it is received.
#pragma once

#include <memory>
#include <vector>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

class ThreadWorld;

class ThreadRanks {
 public:
  /// `per_node` 0: all on one node.
  explicit ThreadRanks(int size, int per_node = 0);
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks &) = delete;
  ThreadRanks &operator=(const ThreadRanks &) = delete;

  /// The table of one rank, for one thread at a time. This object owns it; the table's own `free` does nothing.
  outcrop_transport &transport(int rank);

  /// Simulates a lost connection: from now on each call at each rank fails, and waiting calls end.
  void fail();

 private:
  std::unique_ptr<ThreadWorld> world_;
};

}  // namespace outcrop::aggregate
