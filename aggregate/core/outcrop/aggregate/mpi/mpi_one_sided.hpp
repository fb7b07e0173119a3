// One-sided messages between ranks: receivers fetch them from windows of the senders (RMA), where that works.
//
//     communicators ─► window ─► open ─► probe: each rank fetches from two others, and compares what came
//
// After each step all ranks tell whether it worked (mpi_transport.cpp). The next step is taken only if it worked on all.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "outcrop/aggregate/mpi/mpi_two_sided.hpp"

namespace outcrop::aggregate {

/// A limit for calls of MPI that all ranks make together and that may never return, because some MPI hangs.
///
/// Nothing returns from such a call, and no other call of MPI works beside it, not even MPI_Finalize. So the process prints a
/// line that says what to do, and ends; mpirun then ends the others.
class Deadline {
 public:
  Deadline(std::chrono::duration<double> limit, std::string line)
      : line_(std::move(line)), thread_([this, limit] { watch(limit); }) {}
  ~Deadline() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline &) = delete;
  Deadline &operator=(const Deadline &) = delete;

 private:
  void watch(std::chrono::duration<double> limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
    std::fprintf(stderr, "%s\n", line_.c_str());
    std::_Exit(1);
  }

  const std::string line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;  // the last: it uses what is above
};

/// Memory of each rank, in slots, from which all others may fetch without its taking part: an MPI window.
///
/// Ranks fetch (MPI_Rget) and do not put, because the end of a fetch can be tested, and means that the bytes are there.
/// Only a call that waits tells whether a put has arrived.
class MpiWindow {
 public:
  /// Collective, and may hang where MPI does (Deadline). Throws std::runtime_error.
  MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes);
  /// Collective, unless it was released.
  ~MpiWindow();
  MpiWindow(const MpiWindow &) = delete;
  MpiWindow &operator=(const MpiWindow &) = delete;

  /// Begins access by all ranks, once all have a window.
  void open();
  /// Leaves the window to MPI_Finalize, because no rank may wait for a rank that has failed.
  void release() { window_ = MPI_WIN_NULL; }

  std::size_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> slot(std::size_t number) const { return {memory_ + number * slot_bytes_, slot_bytes_}; }

  /// Makes what has been written to own slots visible to fetches.
  void publish() const { check(MPI_Win_sync(window_), "publishing a slot"); }
  /// Begins to fetch `target.size()` bytes of a rank's slot.
  MPI_Request fetch(std::span<std::byte> target, int from, std::size_t slot) const;

 private:
  const std::size_t slots_, slot_bytes_;
  std::byte *memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  bool open_ = false;
};

/// Messages that the receiver fetches from a window of the sender, in pieces of a slot.
///
///     receiver                                       sender
///     receive: a ticket ───────── tag ────────────►  send: takes the ticket; for each piece, when a slot is free:
///     header ◄──────────────── tag: ticket ────────  copies it there, says in which slot it is
///     MPI_Rget from the slot
///     fetched ───────── tag: first_slot + slot ───►  the slot is free
///
/// Only messages with a receiver take slots, so messages never wait in a circle. Tickets keep the order of messages of one
/// tag. Pieces of a message come in order; those of different messages come in any order.
///
/// No call waits. Each call of advance() moves all messages under way at this rank.
class MpiGets {
 public:
  /// Uses both communicators and the window, and frees none. Messages have at least a byte.
  MpiGets(MPI_Comm tickets_over, MPI_Comm pieces_over, MpiWindow &window);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  void advance();
  /// Whether a message is over. Its request is used up then.
  bool over(outcrop_request request);
  /// Whether nothing is under way.
  bool idle() const;
  /// Cancels what is under way. Then this object must never be destroyed, because MPI may still use it. False when MPI may also
  /// use memory that was given to receive().
  bool abandon() noexcept;

  /// Marks requests of this class among others of the same transport.
  static constexpr outcrop_request mark = outcrop_request{1} << 63;

 private:
  static constexpr int max_tickets = 16384, first_slot = max_tickets;  // tags of pieces_over
  using Ticket = std::uint32_t;

  struct Header {
    std::uint64_t slot = 0, bytes = 0, bytes_of_message = 0;
  };
  struct Sending {
    std::span<const std::byte> rest;  ///< not in a slot yet
    std::size_t bytes = 0, slots = 0;
    int to = 0, tag = 0;
    Ticket ticket = 0;
    MPI_Request ticket_coming = MPI_REQUEST_NULL;
    bool busy = false;
  };
  struct Receiving {
    std::span<std::byte> rest;  ///< not fetched yet
    std::size_t bytes = 0;
    int from = 0, tag = 0;
    Ticket ticket = 0;
    Header header;
    MPI_Request ticket_going = MPI_REQUEST_NULL, header_coming = MPI_REQUEST_NULL, piece = MPI_REQUEST_NULL,
                fetched = MPI_REQUEST_NULL;
    bool busy = false, has_ticket = false, fetching = false;
  };
  struct Slot {
    Sending *message = nullptr;  ///< whose piece it holds; null: it is free
    Header header;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};  // the header goes; it has been fetched
  };

  template <typename Message>
  bool finished(MPI_Request &request, const Message &message);
  void free_slots();
  void fill_slots(Sending &message);
  void give_ticket(Receiving &message);
  void ask_for_header(Receiving &message);
  void fetch(Receiving &message);
  void advance(Receiving &message);
  static std::string text(const Sending &message);
  static std::string text(const Receiving &message);

  MPI_Comm tickets_over_, pieces_over_;
  MpiWindow &window_;
  // MPI holds addresses of what is in there, so nothing in them moves.
  std::deque<Sending> sendings_;
  std::deque<Receiving> receivings_;
  std::vector<std::size_t> sendings_unused_, receivings_unused_;
  std::vector<Slot> slots_;
  std::vector<Ticket> tickets_;
  std::deque<Receiving *> without_ticket_;
};

/// All that one-sided messages need, and the probe before their use.
class MpiOneSided {
 public:
  // All throw std::runtime_error. All but release() and abandon() are collective.
  MpiOneSided(MPI_Comm original, std::size_t slot_bytes);
  void make_window();
  void open_window();
  /// Also throws if something does not come in time. Then messages may be under way.
  void probe(int rank, int size, std::chrono::duration<double> limit);

  /// Whether messages of this size are fetched from a window.
  bool takes(std::size_t bytes) const { return bytes > small_bytes_; }
  MpiGets &gets() { return *gets_; }

  /// Whether nothing is under way.
  bool idle() const { return !gets_ || gets_->idle(); }
  /// Leaves everything to MPI_Finalize. Then the destruction of this object does not wait for others.
  void release();
  /// As MpiGets::abandon(): then this object must never be destroyed.
  bool abandon() noexcept { return !gets_ || gets_->abandon(); }

 private:
  static constexpr std::size_t max_small_bytes = 4096, slots = 8;

  const std::size_t slot_bytes_, small_bytes_;
  Communicator tickets_over_, pieces_over_;
  std::optional<MpiWindow> window_;
  std::optional<MpiGets> gets_;
};

}  // namespace outcrop::aggregate
