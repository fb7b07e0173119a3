// Messages of any size between the ranks of a communicator.
//
//     message ──► chunks of at most chunk_bytes, all with the message's tag ──► MPI_Isend, MPI_Irecv
//
// Both sides know the size of a message, so they cut alike, and MPI keeps messages of one tag between two ranks in
// order: chunks need no headers.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/mpi/mpi_calls.hpp"
#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

class MpiMessages {
 public:
  /// Uses the communicator, and does not free it.
  MpiMessages(MPI_Comm communicator, std::size_t chunk_bytes, const Manner &manner);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  /// Ends what is over, and makes it 0; true when nothing is left.
  bool advance(std::span<outcrop_request> requests);
  void wait(std::span<outcrop_request> requests);

  /// Cancels what is under way after a failure. False when MPI may still use memory of it.
  bool abandon() noexcept;

 private:
  /// A slot that is used again keeps the memory of its chunks.
  struct Message {
    bool sending = false;
    std::size_t bytes = 0;
    int partner = 0;
    int tag = 0;
    std::vector<MPI_Request> chunks;
    std::size_t finished = 0;  ///< chunks, from the first on
  };

  static std::string text(const Message &message);
  outcrop_request begin(bool sending, std::byte *data, std::size_t bytes, int partner, int tag);
  /// Whether a message is over; if so its slot can be used again.
  bool over(outcrop_request request);

  MPI_Comm communicator_;
  int size_ = 0;
  std::size_t chunk_bytes_;
  const Manner manner_;
  std::vector<Message> slots_;  ///< request r is slot r - 1
  std::vector<std::size_t> unused_;
};

}  // namespace outcrop::aggregate
