// Calls of MPI: errors as text, waiting, messages of any size, and collective calls.
//
// MPI's own waits keep a core busy. With more ranks than cores, the rank that is waited for, or an I/O thread, needs that core.
// So this library begins each operation, and then tests it with pauses. With eight ranks on two cores (MPICH), a barrier takes
// 0.6 to 0.7 ms instead of 15 to 32 ms, and 64 KiB from each rank to one rank take 0.4 ms instead of 2 to 19 ms.
#pragma once

// C++ bindings of old versions of MPI are not used, and produce warnings.
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

/// The text of an MPI error code, in one line.
inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI error " + std::to_string(code);
  std::string line(text, static_cast<std::size_t>(length));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  for (std::size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at)) line.replace(at, 1, "; ");
  return line;
}

/// Throws std::runtime_error unless a call of MPI has succeeded.
inline void check(int code, const std::string &doing) {
  if (code != MPI_SUCCESS) throw std::runtime_error(doing + ": " + mpi_text(code));
}

/// Returns "Open MPI v4.1.4" or "MPICH 4.0.2". The text of MPI itself may be pages long.
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

/// A communicator that this library owns. The destructor frees it, which is collective, unless it was released.
class Communicator {
 public:
  Communicator() = default;
  /// Collective: duplicates a communicator.
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

/// How the calls of a transport wait for other ranks.
struct WaitPolicy {
  bool crowded = false;                  ///< this node has at least as many ranks as cores
  const double *seconds_most = nullptr;  ///< the transport's limit, which may change; 0: no limit
};

/// Pauses between tests of an operation: first there is no pause, then the thread yields its core, then it sleeps.
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

  /// Also throws an error with the text of doing() when the waiting has exceeded the policy's limit.
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

/// The time at which transfers under way are given up after a failure.
inline std::chrono::steady_clock::time_point deadline_of_abandoned() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(1);
}

/// Waits until a transfer has ended or the deadline has passed. Cancels it first if `cancel`. Returns false if MPI may still
/// use its memory.
bool ends_before(std::chrono::steady_clock::time_point deadline, MPI_Request &request, bool cancel) noexcept;

// --- messages ------------------------------------------------------------------------------------------------------

/// Messages of any size between the ranks of a communicator.
///
///     message ──► chunks of at most chunk_bytes, all with the message's tag ──► MPI_Isend, MPI_Irecv
///
/// Both sides know the size of a message, so they cut it into the same chunks. MPI keeps messages of one tag between two ranks
/// in order, so chunks need no headers.
class MpiMessages {
 public:
  /// Uses the communicator, and does not free it.
  MpiMessages(MPI_Comm communicator, std::size_t chunk_bytes, const WaitPolicy &policy);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  /// Sets requests that have ended to 0. Returns true if all have ended.
  bool advance(std::span<outcrop_request> requests);
  void wait(std::span<outcrop_request> requests);

  /// After a failure: cancels messages under way. Returns false if MPI may still use their memory.
  bool abandon() noexcept;

 private:
  /// Slots are used again, so that the memory of `chunks` is kept.
  struct Message {
    bool sending = false;
    std::size_t bytes = 0;
    int partner = 0;
    int tag = 0;
    std::vector<MPI_Request> chunks;
    std::size_t finished = 0;  ///< the number of chunks that have ended, from the first on
  };

  static std::string text(const Message &message);
  outcrop_request begin(bool sending, std::byte *data, std::size_t bytes, int partner, int tag);
  /// Returns true if a message has ended. Then its slot can be used again.
  bool over(outcrop_request request);

  MPI_Comm communicator_;
  int size_ = 0;
  std::size_t chunk_bytes_;
  const WaitPolicy policy_;
  std::vector<Message> slots_;  ///< request r is slot r - 1
  std::vector<std::size_t> unused_;
};

// --- collective calls ----------------------------------------------------------------------------------------------

/// Gathering and barriers. They have a communicator of their own, so that other messages do not match theirs.
class MpiCollectives {
 public:
  /// Uses the communicator, and does not free it. Calls `meanwhile` repeatedly while it waits, because other ranks may wait for
  /// messages that only this call advances.
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
