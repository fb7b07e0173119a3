// What all ranks do together, over a communicator of its own, so that what it sends never meets a message.
//
// What is too much for the counts of one collective call of MPI goes round in messages: to the k-th rank on, from the k-th
// before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "outcrop/aggregate/mpi/mpi_messages.hpp"

namespace outcrop::aggregate {

class MpiCollectives {
 public:
  /// Uses the communicator, and does not free it. `meanwhile` is called again and again while others are waited for, who
  /// may wait for what it moves.
  MpiCollectives(MPI_Comm communicator, std::size_t chunk_bytes, const Manner &manner, std::function<void()> meanwhile);

  void gather_all(const void *mine, std::size_t bytes, void *all);
  void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all);
  void barrier();

  /// As that of MpiMessages.
  bool abandon() noexcept { return rounds_.abandon(); }

 private:
  void finish(MPI_Request collective, const char *doing);
  void gather_by_messages(const std::byte *mine, std::span<const std::uint64_t> sizes, std::byte *all);

  MPI_Comm communicator_;
  int rank_ = 0, size_ = 0;
  const std::size_t chunk_bytes_;
  const Manner manner_;
  const std::function<void()> meanwhile_;
  MpiMessages rounds_;
};

}  // namespace outcrop::aggregate
