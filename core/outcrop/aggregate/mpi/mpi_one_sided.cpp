#include "outcrop/aggregate/mpi/mpi_one_sided.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace outcrop::aggregate {
namespace {

/// Other bytes for each pair of ranks.
std::vector<std::byte> content(std::size_t bytes, int from, int to) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    made[i] =
        static_cast<std::byte>(i * 7 + i / 251 + static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to));
  return made;
}

}  // namespace

MpiOneSided::MpiOneSided(MPI_Comm original, std::size_t slot_bytes)
    : slot_bytes_(slot_bytes),
      small_bytes_(std::min(small_bytes_most, slot_bytes / 4)),
      tickets_over_(original),
      pieces_over_(original) {}

void MpiOneSided::make_window() { window_.emplace(pieces_over_.value, slots, slot_bytes_); }

void MpiOneSided::open_window() {
  window_->open();
  gets_.emplace(tickets_over_.value, pieces_over_.value, *window_);
}

void MpiOneSided::probe(int rank, int size, std::chrono::duration<double> most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  const std::size_t bytes = slots * slot_bytes_ + slot_bytes_ / 2;  // more than the window holds
  for (const int steps : {1, size / 2}) {
    const int to = (rank + steps) % size, from = (rank + size - steps) % size;
    const std::vector<std::byte> sent = content(bytes, rank, to);
    std::vector<std::byte> came(bytes);
    outcrop_request sending = gets_->send(sent.data(), bytes, to, 0),
                    receiving = gets_->receive(came.data(), bytes, from, 0);
    for (Patience patience(Manner{true}); sending != 0 || receiving != 0; patience.pause()) {
      gets_->advance();
      if (sending != 0 && gets_->over(sending)) sending = 0;
      if (receiving != 0 && gets_->over(receiving)) receiving = 0;
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("a message from rank " + std::to_string(from) + " or to rank " + std::to_string(to) +
                                 " does not end");
    }
    if (came != content(bytes, from, rank))
      throw std::runtime_error("other bytes came from rank " + std::to_string(from) + " than it has sent");
  }
}

void MpiOneSided::release() {
  if (window_) window_->release();
  tickets_over_.release();
  pieces_over_.release();
}

}  // namespace outcrop::aggregate
