// This file is the C++ side of the transport. The class Link calls the functions of the table in transport.h. If such a
// function fails, Link throws an exception. The class ThreadRanks makes tables of this kind for ranks that are threads
// of one process. Tests use ThreadRanks. Programs with their own threads can also use it.
//
//     ThreadRanks ranks(16, 4);                 16 ranks on 4 simulated nodes of 4 ranks each
//     Link link(ranks.transport(rank));         in the thread of each rank
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/transport/transport.h"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

/// Calls the functions of a transport. If the transport fails, all functions that move bytes or wait for other ranks
/// throw CommunicationError. rank(), size() and node() still work after the transport has been freed, because explain()
/// needs these numbers even after a plan is closed.
class Link {
 public:
  explicit Link(outcrop_transport &transport)
      : table_(&transport), rank_(transport.rank), size_(transport.size), node_(transport.node) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int node() const { return node_; }
  std::string host() const { return table_->host; }
  /// Returns the maximum number of seconds for which a call waits for other ranks. The value 0 means no limit.
  double seconds_most() const { return table_->seconds_most; }

  outcrop_request send(std::span<const std::byte> data, int to, int tag) const {
    outcrop_request request = 0;
    check(table_->send(table_->self, data.data(), data.size(), to, tag, &request));
    return request;
  }
  outcrop_request receive(std::span<std::byte> data, int from, int tag) const {
    outcrop_request request = 0;
    check(table_->receive(table_->self, data.data(), data.size(), from, tag, &request));
    return request;
  }
  void wait(std::span<outcrop_request> requests) const {
    check(table_->wait(table_->self, requests.data(), requests.size()));
  }
  bool test(std::span<outcrop_request> requests) const {
    int done = 0;
    check(table_->test(table_->self, requests.data(), requests.size(), &done));
    return done != 0;
  }
  void barrier() const { check(table_->barrier(table_->self)); }

  /// Ends all transfers of this rank after a failure. Returns false if a transfer may still use memory that the caller
  /// has passed to the transfer.
  bool abandon() const { return table_->abandon(table_->self) == 0; }

  /// All ranks must call this function. Returns the values of all ranks, sorted by rank.
  template <typename T>
  std::vector<T> gather(const T &mine) const {
    std::vector<T> all(static_cast<std::size_t>(size()));
    check(table_->gather_all(table_->self, &mine, sizeof mine, all.data()));
    return all;
  }

  /// All ranks must call this function. Returns the lists of all ranks as one list, sorted by rank. If `begins` is
  /// given, stores in `begins` the index at which the list of each rank begins. The list of rank r has the indices
  /// begins[r] to begins[r + 1] - 1 in the returned list.
  template <typename List, typename T = typename List::value_type>
  std::vector<T> gather_lists(const List &mine, std::vector<std::size_t> *begins = nullptr) const {
    const std::vector<std::uint64_t> bytes = gather(std::uint64_t{mine.size() * sizeof(T)});
    std::vector<std::size_t> ends{0};
    for (const std::uint64_t each : bytes) ends.push_back(ends.back() + each / sizeof(T));
    std::vector<T> all(ends.back());
    check(table_->gather_all_sizes(table_->self, mine.data(), bytes.data(), all.data()));
    if (begins != nullptr) *begins = std::move(ends);
    return all;
  }

 private:
  void check(int result) const {
    if (result != 0) throw CommunicationError(table_->error(table_->self));
  }

  outcrop_transport *table_;
  int rank_, size_, node_;
};

class ThreadWorld;

/// Makes transports for ranks that are threads of one process. send() copies the message into a queue.
class ThreadRanks {
 public:
  /// Makes `size` ranks. Each simulated node has `per_node` ranks. If `per_node` is 0, all ranks are on one node.
  explicit ThreadRanks(int size, int per_node = 0);
  ~ThreadRanks();
  ThreadRanks(const ThreadRanks &) = delete;
  ThreadRanks &operator=(const ThreadRanks &) = delete;

  /// Returns the table of one rank. Only one thread at a time may use the table of a rank. ThreadRanks owns the table,
  /// so the function `free` of the table does nothing.
  outcrop_transport &transport(int rank);

  /// Simulates a lost connection. Calls that are waiting now fail. All later calls of all ranks fail as well.
  void fail();

 private:
  std::unique_ptr<ThreadWorld> world_;
};

}  // namespace outcrop::aggregate
