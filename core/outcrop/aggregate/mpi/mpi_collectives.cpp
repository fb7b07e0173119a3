#include "outcrop/aggregate/mpi/mpi_collectives.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace outcrop::aggregate {

MpiCollectives::MpiCollectives(MPI_Comm communicator, std::size_t chunk_bytes, const Manner &manner,
                               std::function<void()> meanwhile)
    : communicator_(communicator),
      chunk_bytes_(chunk_bytes),
      manner_(manner),
      meanwhile_(std::move(meanwhile)),
      rounds_(communicator, chunk_bytes, manner) {
  check(MPI_Comm_rank(communicator, &rank_), "asking for the rank");
  check(MPI_Comm_size(communicator, &size_), "asking for the number of ranks");
}

void MpiCollectives::finish(MPI_Request collective, const char *doing) {
  Patience patience(manner_);
  for (int done = 0;;) {
    check(MPI_Test(&collective, &done, MPI_STATUS_IGNORE), doing);
    if (done != 0) return;
    meanwhile_();
    patience.pause([&] { return std::string(doing); });
  }
}

void MpiCollectives::gather_all(const void *mine, std::size_t bytes, void *all) {
  const std::size_t ranks = static_cast<std::size_t>(size_);
  if (bytes > chunk_bytes_ / ranks) {
    const std::vector<std::uint64_t> sizes(ranks, bytes);
    return gather_by_messages(static_cast<const std::byte *>(mine), sizes, static_cast<std::byte *>(all));
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = static_cast<int>(bytes);
  check(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, communicator_, &request), "gathering");
  finish(request, "gathering");
}

void MpiCollectives::gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all) {
  const std::span<const std::uint64_t> each(sizes, static_cast<std::size_t>(size_));
  std::vector<int> counts, begins;
  std::uint64_t sum = 0;
  for (const std::uint64_t size : each) {
    if (size > chunk_bytes_ - sum)
      return gather_by_messages(static_cast<const std::byte *>(mine), each, static_cast<std::byte *>(all));
    counts.push_back(static_cast<int>(size));
    begins.push_back(static_cast<int>(sum));
    sum += size;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgatherv(mine, counts[static_cast<std::size_t>(rank_)], MPI_BYTE, all, counts.data(), begins.data(),
                        MPI_BYTE, communicator_, &request),
        "gathering");
  finish(request, "gathering");
}

/// What is too much for the counts of one collective call goes round: to the k-th rank on, from the k-th before.
void MpiCollectives::gather_by_messages(const std::byte *mine, std::span<const std::uint64_t> sizes, std::byte *all) {
  const std::size_t ranks = sizes.size(), own = static_cast<std::size_t>(rank_);
  std::vector<std::uint64_t> begins(ranks, 0);
  for (std::size_t i = 1; i < ranks; ++i) begins[i] = begins[i - 1] + sizes[i - 1];
  if (sizes[own] > 0) std::memcpy(all + begins[own], mine, sizes[own]);
  for (std::size_t k = 1; k < ranks; ++k) {
    const std::size_t to = (own + k) % ranks, from = (own + ranks - k) % ranks;
    outcrop_request both[2] = {rounds_.receive(all + begins[from], sizes[from], static_cast<int>(from), 0),
                               rounds_.send(mine, sizes[own], static_cast<int>(to), 0)};
    for (Patience patience(manner_); !rounds_.advance(both);) {
      meanwhile_();
      patience.pause([&] { return "gathering from rank " + std::to_string(from); });
    }
  }
}

void MpiCollectives::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(communicator_, &request), "waiting for all ranks");
  finish(request, "waiting for all ranks");
}

}  // namespace outcrop::aggregate
