// Helpers for calls of MPI: texts of errors, waiting, messages of any size, and collective calls.
//
// While MPI waits, MPI keeps a core busy. Another rank or an I/O thread may need the same core. Therefore this library
// never uses the waiting functions of MPI. The library begins an operation, and then tests the operation repeatedly,
// with pauses. Example: MPICH with eight ranks on two cores. A barrier takes 0.6 to 0.7 ms with tests and pauses, but
// 15 to 32 ms with MPI's own waiting. Messages of 64 KiB from each rank to one rank take 0.4 ms with tests and pauses,
// but 2 to 19 ms with MPI's own waiting.
#pragma once

// With these macros, MPI's header leaves out the C++ bindings of old versions. The C++ bindings cause warnings, and
// this library does not use them.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

/// Returns the text of an MPI error code, in one line.
inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
  std::string line(text, static_cast<std::size_t>(length));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (std::size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at)) line.replace(at, 1, "; ");
  return line;
}

/// Throws std::runtime_error if a call of MPI has returned an error.
inline void check(int code, const std::string &doing) {
  if (code != MPI_SUCCESS) throw std::runtime_error(doing + ": " + mpi_text(code));
}

/// Returns a short name of the MPI library, such as "Open MPI v4.1.4" or "MPICH 4.0.2". The text from MPI itself can be
/// several pages long.
inline std::string mpi_library_name() {
  constexpr std::string_view label = "Version:";
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "asking for the version of MPI");
  text.resize(std::min(text.find_first_of(",\n"), static_cast<std::size_t>(length)));
  const std::size_t word = text.find(label);
  if (word != std::string::npos) text.erase(word, text.find_first_not_of(" \t", word + label.size()) - word);
  return text;
}

/// A communicator that this library owns. All ranks must destroy the object together. The destructor frees the
/// communicator if release() was not called.
class Communicator {
 public:
  Communicator() = default;
  /// Makes a duplicate of `original`. All ranks must call this constructor.
  explicit Communicator(MPI_Comm original) { check(MPI_Comm_dup(original, &value), "duplicating a communicator"); }
  ~Communicator() {
    if (value != MPI_COMM_NULL) MPI_Comm_free(&value);
  }
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  void release() { value = MPI_COMM_NULL; }
  MPI_Comm value = MPI_COMM_NULL;
};

// --- waiting -------------------------------------------------------------------------------------------------------

/// A rank of this node, with the number of its process in the operating system.
struct Neighbour {
  int rank = 0, process = 0;
};

/// Returns true if a process of this node has ended. (Class ProcessWatch of node.hpp keeps a handle of each process.
/// This function needs no handles between its calls, and no other files of the project.)
inline bool has_ended(int process) {
#ifdef SYS_pidfd_open
  if (const long handle = syscall(SYS_pidfd_open, process, 0); handle >= 0) {
    pollfd state{static_cast<int>(handle), POLLIN, 0};  // POLLIN means that the process has ended
    const bool ended = poll(&state, 1, 0) == 1;
    close(static_cast<int>(handle));
    return ended;
  }
#endif
  return kill(process, 0) != 0 && errno == ESRCH;
}

/// The data that determine how calls of a transport wait for other ranks.
struct WaitPolicy {
  bool crowded = false;                  ///< true if this node has at least as many ranks as cores
  const double *seconds_most = nullptr;  ///< the transport's time limit, which may change; 0 means no limit
  /// the other ranks of this node whose processes this process can see; a waiting call fails if one of them has ended
  const std::vector<Neighbour> *neighbours = nullptr;
};

/// Pauses between two tests of an operation. The first pauses end immediately. In later pauses, the thread gives its
/// core to other threads without sleeping. In the last pauses, the thread sleeps.
class Backoff {
 public:
  explicit Backoff(const WaitPolicy &policy)
      : tests_(policy.crowded ? 8 : 2000),
        seconds_most_(policy.seconds_most ? *policy.seconds_most : 0),
        neighbours_(policy.neighbours) {}

  void pause() {
    ++tested_;
    if (tested_ <= tests_) return;
    if (tested_ <= tests_ + 32)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  /// Makes one pause. Throws an error if the caller has waited longer than the limit in the policy, or if a process of
  /// this node has ended. The error contains the text that the function doing() returns.
  template <typename Text>
  void pause(const Text &doing) {
    pause();
    if (tested_ <= tests_) return;
    const Clock::time_point now = Clock::now();
    if (tested_ == tests_ + 1) begun_ = checked_ = now;
    if (seconds_most_ != 0 && std::chrono::duration<double>(now - begun_).count() > seconds_most_)
      throw std::runtime_error(doing() + late());
    if (neighbours_ == nullptr || now - checked_ < std::chrono::milliseconds(250)) return;
    checked_ = now;
    check_neighbours(doing);
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string late() const {
    char text[120];
    std::snprintf(text, sizeof text,
                  ": other ranks have not responded within %.4g s, the limit of the setting seconds_most",
                  seconds_most_);
    return text;
  }

  // Throws an error if a process of this node has ended, and the previous check has found the same. The reason is that
  // the last messages of a process can arrive after its end. The caller gets some time to receive these messages.
  template <typename Text>
  void check_neighbours(const Text &doing) {
    const auto ended = std::ranges::find_if(*neighbours_, has_ended, &Neighbour::process);
    if (ended == neighbours_->end()) return;
    if (std::exchange(ended_before_, true))
      throw std::runtime_error(doing() + ": rank " + std::to_string(ended->rank) +
                               " has ended before its work was complete");
  }

  int tests_;
  double seconds_most_;
  const std::vector<Neighbour> *neighbours_;
  int tested_ = 0;
  bool ended_before_ = false;
  Clock::time_point begun_, checked_;
};

/// Returns the deadline for transfers that have not ended after a failure.
inline std::chrono::steady_clock::time_point deadline_of_abandoned() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(1);
}

/// Waits until a transfer has ended, or until the deadline. If `cancel` is true, the function first cancels the
/// transfer. Returns false if MPI may still use the memory of the transfer.
inline bool ends_before(std::chrono::steady_clock::time_point deadline, MPI_Request &request, bool cancel) noexcept {
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

/// Messages of any size between the ranks of a communicator.
///
///     message ──► chunks of at most chunk_bytes, all with the message's tag ──► MPI_Isend, MPI_Irecv
///
/// The sender and the receiver both know the size of a message, so they cut the message into the same chunks. Between
/// two ranks, MPI keeps the order of messages with the same tag. So chunks need no headers.
class MpiMessages {
 public:
  /// The caller owns and frees the communicator.
  MpiMessages(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy)
      : communicator_(communicator), chunk_bytes_(chunk_bytes), policy_(policy) {
    check(MPI_Comm_size(communicator, &size_), "asking for the number of ranks");
  }

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag) {
    return begin(true, const_cast<std::byte *>(data), bytes, to, tag);
  }

  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag) {
    return begin(false, data, bytes, from, tag);
  }

  /// Sets a request to 0 if its message has ended. Returns true if all requests have ended.
  bool advance(std::span<outcrop_request> requests) {
    bool all = true;
    for (outcrop_request &request : requests) {
      if (request != 0 && over(request)) request = 0;
      all = all && request == 0;
    }
    return all;
  }

  void wait(std::span<outcrop_request> requests) {
    for (outcrop_request &request : requests) {
      if (request == 0) continue;
      for (Backoff backoff(policy_); !over(request);) backoff.pause([&] { return text(slots_[request - 1]); });
      request = 0;
    }
  }

  /// After a failure, waits a short time for unfinished transfers, because MPI may still write into their buffers. The
  /// wait is limited, because a transfer never ends if the other rank has failed. Returns false if MPI may still use
  /// the memory of these messages.
  bool abandon() noexcept {
    bool ended = true;
    const auto deadline = deadline_of_abandoned();
    for (Message &message : slots_)
      for (MPI_Request &chunk : message.chunks) ended = ends_before(deadline, chunk, !message.sending) && ended;
    return ended;
  }

 private:
  /// The state of one message. Later messages use the same object again, so that they need not allocate `chunks`.
  struct Message {
    bool sending = false;
    std::size_t bytes = 0;
    int partner = 0;
    int tag = 0;
    std::vector<MPI_Request> chunks;
    std::size_t finished = 0;  ///< chunks 0 to finished - 1 have ended
  };

  static constexpr int max_tag = 32767;  // all versions of MPI allow tags up to this number

  static std::string text(const Message &message) {
    return std::string(message.sending ? "sending " : "receiving ") + std::to_string(message.bytes) + " bytes " +
           (message.sending ? "to" : "from") + " rank " + std::to_string(message.partner) + " with tag " +
           std::to_string(message.tag);
  }

  outcrop_request begin(bool sending, std::byte *data, std::size_t bytes, int partner, int tag) {
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
    if (tag < 0 || tag > max_tag)
      throw std::runtime_error(text(message) + ": tags are 0 to " + std::to_string(max_tag));
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

  /// Returns true if the message of this request has ended. After the message has ended, another message can use the
  /// request's element of `slots_`.
  bool over(outcrop_request request) {
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
        throw std::runtime_error(text(message) + ": a chunk of " + std::to_string(length) +
                                 " bytes arrived instead of " + std::to_string(expected));
    }
    unused_.push_back(request - 1);
    return true;
  }

  MPI_Comm communicator_;
  int size_ = 0;
  std::size_t chunk_bytes_;
  const WaitPolicy policy_;
  std::vector<Message> slots_;  ///< request r uses slot r - 1
  std::vector<std::size_t> unused_;
};

// --- collective calls ----------------------------------------------------------------------------------------------

/// Gathers data of all ranks, and makes ranks wait at barriers. This class has its own communicator. Therefore MPI
/// cannot confuse the messages of this class with other messages. MPI cannot cancel a collective call, and may use the
/// memory of a call that has reached its time limit. Therefore this class gives MPI only its own memory.
class MpiCollectives {
 public:
  /// The caller owns and frees the communicator. While a function of this class waits, the function calls `meanwhile`
  /// repeatedly. `meanwhile` continues messages for which other ranks may wait.
  MpiCollectives(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy,
                 std::function<void()> meanwhile)
      : communicator_(communicator),
        chunk_bytes_(chunk_bytes),
        policy_(policy),
        meanwhile_(std::move(meanwhile)),
        rounds_(communicator, chunk_bytes, policy) {
    check(MPI_Comm_rank(communicator, &rank_), "asking for the rank");
    check(MPI_Comm_size(communicator, &size_), "asking for the number of ranks");
  }

  void gather_all(const void *mine, std::size_t bytes, void *all) {
    const std::size_t ranks = static_cast<std::size_t>(size_);
    with_own_memory(mine, bytes, all, bytes * ranks, [&](Memory &memory) {
      if (bytes > chunk_bytes_ / ranks) return gather_by_messages(memory, std::vector<std::uint64_t>(ranks, bytes));
      MPI_Request request = MPI_REQUEST_NULL;
      const int count = static_cast<int>(bytes);
      check(MPI_Iallgather(memory.mine.data(), count, MPI_BYTE, memory.all.data(), count, MPI_BYTE, communicator_,
                           &request),
            "gathering");
      finish(request, "gathering");
    });
  }

  void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all) {
    const std::span<const std::uint64_t> each(sizes, static_cast<std::size_t>(size_));
    const std::uint64_t own = each[static_cast<std::size_t>(rank_)];
    with_own_memory(mine, own, all, std::accumulate(each.begin(), each.end(), std::uint64_t{0}), [&](Memory &memory) {
      std::uint64_t sum = 0;
      for (const std::uint64_t size : each) {
        if (size > chunk_bytes_ - sum) return gather_by_messages(memory, each);
        memory.counts.push_back(static_cast<int>(size));
        memory.begins.push_back(static_cast<int>(sum));
        sum += size;
      }
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Iallgatherv(memory.mine.data(), static_cast<int>(own), MPI_BYTE, memory.all.data(),
                            memory.counts.data(), memory.begins.data(), MPI_BYTE, communicator_, &request),
            "gathering");
      finish(request, "gathering");
    });
  }

  void barrier() {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(communicator_, &request), "waiting for all ranks");
    finish(request, "waiting for all ranks");
  }

  /// See MpiMessages::abandon().
  bool abandon() noexcept { return rounds_.abandon(); }

 private:
  /// The memory of one collective call: the bytes of this rank, the bytes of all ranks, and the sizes and places of
  /// each rank's bytes.
  struct Memory {
    std::vector<std::byte> mine, all;
    std::vector<int> counts, begins;
  };

  // Calls gather(memory), and copies the gathered bytes to `all`. If gather(memory) fails, the memory is never freed.
  template <typename Gather>
  static void with_own_memory(const void *mine, std::uint64_t bytes, void *all, std::uint64_t all_bytes,
                              Gather &&gather) {
    auto memory = std::make_unique<Memory>();
    const auto *begin = static_cast<const std::byte *>(mine);
    memory->mine.assign(begin, begin + bytes);
    memory->all.resize(all_bytes);
    try {
      gather(*memory);
    } catch (const std::exception &) {
      static_cast<void>(memory.release());
      throw;
    }
    if (all_bytes > 0) std::memcpy(all, memory->all.data(), all_bytes);
  }

  void finish(MPI_Request collective, const char *doing) {
    Backoff backoff(policy_);
    for (int done = 0;;) {
      check(MPI_Test(&collective, &done, MPI_STATUS_IGNORE), doing);
      if (done != 0) return;
      meanwhile_();
      backoff.pause([&] { return std::string(doing); });
    }
  }

  // Gathers lists of bytes that are too long for one collective call. In step k, rank r sends to rank r + k, and
  // receives from rank r - k (modulo the number of ranks).
  void gather_by_messages(Memory &memory, std::span<const std::uint64_t> sizes) {
    const std::size_t ranks = sizes.size(), own = static_cast<std::size_t>(rank_);
    std::vector<std::uint64_t> begins(ranks, 0);
    for (std::size_t i = 1; i < ranks; ++i) begins[i] = begins[i - 1] + sizes[i - 1];
    std::ranges::copy(memory.mine, memory.all.data() + begins[own]);
    for (std::size_t k = 1; k < ranks; ++k) {
      const std::size_t to = (own + k) % ranks, from = (own + ranks - k) % ranks;
      outcrop_request both[2] = {
          rounds_.receive(memory.all.data() + begins[from], sizes[from], static_cast<int>(from), 0),
          rounds_.send(memory.mine.data(), sizes[own], static_cast<int>(to), 0)};
      for (Backoff backoff(policy_); !rounds_.advance(both);) {
        meanwhile_();
        backoff.pause([&] { return "gathering from rank " + std::to_string(from); });
      }
    }
  }

  MPI_Comm communicator_;
  int rank_ = 0, size_ = 0;
  const std::size_t chunk_bytes_;
  const WaitPolicy policy_;
  const std::function<void()> meanwhile_;
  MpiMessages rounds_;
};

}  // namespace outcrop::aggregate
