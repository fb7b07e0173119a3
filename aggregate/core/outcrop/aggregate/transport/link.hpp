// The transport as the rest of aggregation uses it: failures are exceptions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/transport/transport.h"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

/// All functions that move bytes or wait throw CommunicationError.
class Link {
 public:
  explicit Link(outcrop_transport &transport) : table_(&transport) {}

  int rank() const { return table_->rank; }
  int size() const { return table_->size; }
  int node() const { return table_->node; }
  std::string host() const { return table_->host; }
  /// A rank that has waited this long for others gives up. 0: never.
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

  /// Ends all that is under way at this rank. False when memory of messages may still be used, for ever.
  bool abandon() const { return table_->abandon(table_->self) == 0; }

  /// Collective: one value of every rank.
  template <typename T>
  std::vector<T> gather(const T &mine) const {
    std::vector<T> all(static_cast<std::size_t>(size()));
    check(table_->gather_all(table_->self, &mine, sizeof mine, all.data()));
    return all;
  }

  /// Collective: the lists of all ranks, one after the other. `begins` gets where each begins, and the end of the last.
  template <typename T>
  std::vector<T> gather_lists(std::span<const T> mine, std::vector<std::size_t> &begins) const {
    const std::vector<std::uint64_t> bytes = gather(std::uint64_t{mine.size_bytes()});
    begins.assign(1, 0);
    for (const std::uint64_t each : bytes) begins.push_back(begins.back() + each / sizeof(T));
    std::vector<T> all(begins.back());
    check(table_->gather_all_sizes(table_->self, mine.data(), bytes.data(), all.data()));
    return all;
  }

 private:
  void check(int result) const {
    if (result != 0) throw CommunicationError(table_->error(table_->self));
  }

  outcrop_transport *table_;
};

}  // namespace outcrop::aggregate
