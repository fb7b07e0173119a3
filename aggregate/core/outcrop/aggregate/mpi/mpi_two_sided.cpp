#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace outcrop::aggregate {

// --- waiting -------------------------------------------------------------------------------------------------------

bool ends_before(std::chrono::steady_clock::time_point deadline, MPI_Request &request, bool cancel) noexcept {
  if (request == MPI_REQUEST_NULL) return true;
  if (cancel) MPI_Cancel(&request);
  int done = 0;
  for (Backoff backoff(WaitPolicy{true}); MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;) {
    if (std::chrono::steady_clock::now() > deadline) break;
    backoff.pause();
  }
  if (request == MPI_REQUEST_NULL) return true;
  MPI_Request_free(&request);
  return false;
}

// --- messages ------------------------------------------------------------------------------------------------------

namespace {
constexpr int max_tag = 32767;  // all versions of MPI allow tags up to this number
}  // namespace

MpiMessages::MpiMessages(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy)
    : communicator_(communicator), chunk_bytes_(chunk_bytes), policy_(policy) {
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
  if (tag < 0 || tag > max_tag) throw std::runtime_error(text(message) + ": tags are 0 to " + std::to_string(max_tag));
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
    for (Backoff backoff(policy_); !over(request);) backoff.pause([&] { return text(slots_[request - 1]); });
    request = 0;
  }
}

// Gives the transfers that are under way a short time to end, because MPI may still write into their buffers. The time
// is limited, because a transfer whose partner has failed never ends.
bool MpiMessages::abandon() noexcept {
  bool ended = true;
  const auto deadline = deadline_of_abandoned();
  for (Message &message : slots_)
    for (MPI_Request &chunk : message.chunks) ended = ends_before(deadline, chunk, !message.sending) && ended;
  return ended;
}

// --- collective calls ----------------------------------------------------------------------------------------------

MpiCollectives::MpiCollectives(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy,
                               std::function<void()> meanwhile)
    : communicator_(communicator),
      chunk_bytes_(chunk_bytes),
      policy_(policy),
      meanwhile_(std::move(meanwhile)),
      rounds_(communicator, chunk_bytes, policy) {
  check(MPI_Comm_rank(communicator, &rank_), "asking for the rank");
  check(MPI_Comm_size(communicator, &size_), "asking for the number of ranks");
}

void MpiCollectives::finish(MPI_Request collective, const char *doing) {
  Backoff backoff(policy_);
  for (int done = 0;;) {
    check(MPI_Test(&collective, &done, MPI_STATUS_IGNORE), doing);
    if (done != 0) return;
    meanwhile_();
    backoff.pause([&] { return std::string(doing); });
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

// Gathers data that are too long for one collective call. In step k, rank r sends to rank r + k, and receives from rank
// r - k (modulo the number of ranks).
void MpiCollectives::gather_by_messages(const std::byte *mine, std::span<const std::uint64_t> sizes, std::byte *all) {
  const std::size_t ranks = sizes.size(), own = static_cast<std::size_t>(rank_);
  std::vector<std::uint64_t> begins(ranks, 0);
  for (std::size_t i = 1; i < ranks; ++i) begins[i] = begins[i - 1] + sizes[i - 1];
  if (sizes[own] > 0) std::memcpy(all + begins[own], mine, sizes[own]);
  for (std::size_t k = 1; k < ranks; ++k) {
    const std::size_t to = (own + k) % ranks, from = (own + ranks - k) % ranks;
    outcrop_request both[2] = {rounds_.receive(all + begins[from], sizes[from], static_cast<int>(from), 0),
                               rounds_.send(mine, sizes[own], static_cast<int>(to), 0)};
    for (Backoff backoff(policy_); !rounds_.advance(both);) {
      meanwhile_();
      backoff.pause([&] { return "gathering from rank " + std::to_string(from); });
    }
  }
}

void MpiCollectives::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(communicator_, &request), "waiting for all ranks");
  finish(request, "waiting for all ranks");
}

}  // namespace outcrop::aggregate
