#include "outcrop/aggregate/mpi/mpi_messages.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace outcrop::aggregate {

namespace {
constexpr int tag_most = 32767;  // what MPI promises at least
constexpr auto deserted_after = std::chrono::seconds(1);
}  // namespace

MpiMessages::MpiMessages(MPI_Comm communicator, std::size_t chunk_bytes, const Manner &manner)
    : communicator_(communicator), chunk_bytes_(chunk_bytes), manner_(manner) {
  check(MPI_Comm_size(communicator, &size_), "asking for the number of ranks");
}

std::string MpiMessages::text(const Message &message) {
  return std::string(message.sending ? "sending " : "receiving ") + std::to_string(message.bytes) + " bytes " +
         (message.sending ? "to" : "from") + " rank " + std::to_string(message.partner) + " with tag " +
         std::to_string(message.tag);
}

outcrop_request MpiMessages::send(const std::byte *data, std::size_t bytes, int to, int tag) {
  return begin(true, const_cast<std::byte *>(data), bytes, to, tag);
}

outcrop_request MpiMessages::receive(std::byte *data, std::size_t bytes, int from, int tag) {
  return begin(false, data, bytes, from, tag);
}

outcrop_request MpiMessages::begin(bool sending, std::byte *data, std::size_t bytes, int partner, int tag) {
  if (unused_.empty()) {
    unused_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const std::size_t slot = unused_.back();
  Message &message = slots_[slot];
  message.sending = sending;
  message.bytes = bytes;
  message.partner = partner;
  message.tag = tag;
  if (partner < 0 || partner >= size_)
    throw std::runtime_error(text(message) + ": there are " + std::to_string(size_) + " ranks");
  if (tag < 0 || tag > tag_most)
    throw std::runtime_error(text(message) + ": tags are 0 to " + std::to_string(tag_most));
  const std::size_t chunks = bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0 ? 1 : 0);
  message.chunks.assign(std::max<std::size_t>(1, chunks), MPI_REQUEST_NULL);
  message.finished = 0;
  unused_.pop_back();
  for (std::size_t i = 0; i < message.chunks.size(); ++i) {
    const int length = static_cast<int>(std::min(chunk_bytes_, bytes - i * chunk_bytes_));
    std::byte *const part = length == 0 ? nullptr : data + i * chunk_bytes_;
    MPI_Request *const chunk = &message.chunks[i];
    check(sending ? MPI_Isend(part, length, MPI_BYTE, partner, tag, communicator_, chunk)
                  : MPI_Irecv(part, length, MPI_BYTE, partner, tag, communicator_, chunk),
          text(message));
  }
  return slot + 1;
}

bool MpiMessages::over(outcrop_request request) {
  Message &message = slots_[request - 1];
  for (; message.finished < message.chunks.size(); ++message.finished) {
    MPI_Status status;
    int done = 0, length = 0;
    check(MPI_Test(&message.chunks[message.finished], &done, &status), text(message));
    if (done == 0) return false;
    if (message.sending) continue;
    check(MPI_Get_count(&status, MPI_BYTE, &length), text(message));
    const std::size_t expected = std::min(chunk_bytes_, message.bytes - message.finished * chunk_bytes_);
    if (static_cast<std::size_t>(length) != expected)
      throw std::runtime_error(text(message) + ": a chunk of " + std::to_string(length) + " bytes came instead of " +
                               std::to_string(expected));
  }
  unused_.push_back(request - 1);
  return true;
}

bool MpiMessages::advance(std::span<outcrop_request> requests) {
  bool all = true;
  for (outcrop_request &request : requests) {
    if (request != 0 && over(request)) request = 0;
    all = all && request == 0;
  }
  return all;
}

void MpiMessages::wait(std::span<outcrop_request> requests) {
  for (outcrop_request &request : requests) {
    if (request == 0) continue;
    for (Patience patience(manner_); !over(request);) patience.pause([&] { return text(slots_[request - 1]); });
    request = 0;
  }
}

// MPI may still write into buffers of what is under way, so all of it gets a little time to end; a transfer that its
// partner has deserted never does.
bool MpiMessages::abandon() noexcept {
  bool ended = true;
  const auto deadline = std::chrono::steady_clock::now() + deserted_after;
  for (Message &message : slots_) {
    for (MPI_Request &chunk : message.chunks) {
      if (chunk == MPI_REQUEST_NULL) continue;
      if (!message.sending) MPI_Cancel(&chunk);
      int done = 0;
      for (Patience patience(Manner{true}); MPI_Test(&chunk, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;) {
        if (std::chrono::steady_clock::now() > deadline) break;
        patience.pause();
      }
      if (chunk == MPI_REQUEST_NULL) continue;
      ended = false;
      MPI_Request_free(&chunk);
    }
  }
  return ended;
}

}  // namespace outcrop::aggregate
