// Helpers for calls of MPI: texts of errors, waiting, messages of any size, and collective calls.
//
// While MPI waits, it keeps a core busy. With more ranks than cores, another rank or an I/O thread may need this core.
// So this library never lets MPI wait. It begins an operation, and then tests the operation repeatedly, with pauses.
// Times were measured with eight ranks on two cores, with MPICH. A barrier takes 0.6 to 0.7 ms with tests and pauses,
// and 15 to 32 ms if MPI waits. If each rank sends 64 KiB to the same rank, all messages together take 0.4 ms with
// tests and pauses, and 2 to 19 ms if MPI waits.
#pragma once

// These macros leave out the C++ bindings of old versions of MPI. The bindings cause warnings, and this library does
// not use them.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
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

/// Returns a short name of the MPI library, such as "Open MPI v4.1.4" or "MPICH 4.0.2". MPI's own text can be pages
/// long.
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

/// A communicator that this library owns. If release() was not called, the destructor frees the communicator. All ranks
/// must call the destructor together.
class Communicator {
 public:
  Communicator() = default;
  /// Collective. Makes a duplicate of `original`.
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

/// The way in which calls of a transport wait for other ranks.
struct WaitPolicy {
  bool crowded = false;                  ///< true if this node has at least as many ranks as cores
  const double *seconds_most = nullptr;  ///< the transport's time limit, which may change; 0: no limit
};

/// Pauses between two tests of an operation. The first pauses do nothing, later pauses give the core to other threads,
/// and the last pauses sleep.
class Backoff {
 public:
  explicit Backoff(const WaitPolicy &policy)
      : tests_(policy.crowded ? 8 : 2000), seconds_most_(policy.seconds_most ? *policy.seconds_most : 0) {}

  void pause() {
    ++tested_;
    if (tested_ <= tests_) return;
    if (tested_ <= tests_ + 32)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  /// Makes one pause. If the caller has waited longer than the policy's limit, throws an error with the text that
  /// doing() returns.
  template <typename Text>
  void pause(const Text &doing) {
    pause();
    if (seconds_most_ == 0 || tested_ <= tests_) return;
    const Clock::time_point now = Clock::now();
    if (tested_ == tests_ + 1) begun_ = now;
    if (std::chrono::duration<double>(now - begun_).count() > seconds_most_) throw std::runtime_error(doing() + late());
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string late() const {
    char text[120];
    std::snprintf(text, sizeof text, ": other ranks have not come within %.4g s, the most by the setting seconds_most",
                  seconds_most_);
    return text;
  }

  int tests_;
  double seconds_most_;
  int tested_ = 0;
  Clock::time_point begun_;
};

/// Returns a deadline for transfers that are still under way after a failure. The caller waits for them until this
/// time.
inline std::chrono::steady_clock::time_point deadline_of_abandoned() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(1);
}

/// Waits until a transfer has ended or the deadline has passed. If `cancel` is true, cancels the transfer first.
/// Returns false if MPI may still use the transfer's memory.
bool ends_before(std::chrono::steady_clock::time_point deadline, MPI_Request &request, bool cancel) noexcept;

// --- messages ------------------------------------------------------------------------------------------------------

/// Messages of any size between the ranks of a communicator.
///
///     message ──► chunks of at most chunk_bytes, all with the message's tag ──► MPI_Isend, MPI_Irecv
///
/// The sender and the receiver know the size of a message, so both cut it into the same chunks. MPI keeps the order of
/// messages with the same tag between two ranks, so chunks need no headers.
class MpiMessages {
 public:
  /// Does not own the communicator: the caller frees it.
  MpiMessages(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  /// If the message of a request has ended, sets this request to 0. Returns true if all requests have ended.
  bool advance(std::span<outcrop_request> requests);
  void wait(std::span<outcrop_request> requests);

  /// Cancels all messages that are under way. This function is called after a failure. Returns false if MPI may still
  /// use memory of these messages.
  bool abandon() noexcept;

 private:
  /// A slot for one message. Later messages use the slot again, so that `chunks` need not be allocated for each
  /// message.
  struct Message {
    bool sending = false;
    std::size_t bytes = 0;
    int partner = 0;
    int tag = 0;
    std::vector<MPI_Request> chunks;
    std::size_t finished = 0;  ///< chunks 0 to finished - 1 have ended
  };

  static std::string text(const Message &message);
  outcrop_request begin(bool sending, std::byte *data, std::size_t bytes, int partner, int tag);
  /// Returns true if the message of this request has ended. Afterwards the slot can be used again.
  bool over(outcrop_request request);

  MPI_Comm communicator_;
  int size_ = 0;
  std::size_t chunk_bytes_;
  const WaitPolicy policy_;
  std::vector<Message> slots_;  ///< request r uses slot r - 1
  std::vector<std::size_t> unused_;
};

// --- collective calls ----------------------------------------------------------------------------------------------

/// Gathers data of all ranks, and makes ranks wait at barriers. These calls use a communicator of their own, so that
/// MPI cannot confuse their messages with other messages.
class MpiCollectives {
 public:
  /// Does not own the communicator: the caller frees it. While a function of this class waits, it calls `meanwhile`
  /// repeatedly. Without these calls, ranks can wait for ever for messages that only `meanwhile` advances.
  MpiCollectives(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy,
                 std::function<void()> meanwhile);

  void gather_all(const void *mine, std::size_t bytes, void *all);
  void gather_all_sizes(const void *mine, const std::uint64_t *sizes, void *all);
  void barrier();

  /// See MpiMessages::abandon().
  bool abandon() noexcept { return rounds_.abandon(); }

 private:
  void finish(MPI_Request collective, const char *doing);
  void gather_by_messages(const std::byte *mine, std::span<const std::uint64_t> sizes, std::byte *all);

  MPI_Comm communicator_;
  int rank_ = 0, size_ = 0;
  const std::size_t chunk_bytes_;
  const WaitPolicy policy_;
  const std::function<void()> meanwhile_;
  MpiMessages rounds_;
};

}  // namespace outcrop::aggregate
