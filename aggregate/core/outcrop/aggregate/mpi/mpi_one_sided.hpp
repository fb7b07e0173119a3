// One-sided messages between ranks: receivers fetch them from windows of the senders (RMA), if that works.
//
//     communicators ─► window ─► open ─► probe: each rank fetches from two others, and compares the bytes
//
// After each step all ranks exchange whether it has worked (mpi_transport.cpp). They take the next step only if it has worked
// on all ranks.
#pragma once

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

/// A time limit for collective calls of MPI, because some versions of MPI hang in them.
///
/// Such a call never returns, and no other call of MPI works meanwhile, not even MPI_Finalize. So the process prints a line
/// that says what the user can do, and ends. Then mpirun ends the other processes.
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
  std::thread thread_;  // the last member, because it uses the members above
};

/// An MPI window: memory of each rank, in slots, that all other ranks can read without a call of its owner.
///
/// Ranks fetch (MPI_Rget) and do not put. The end of a fetch can be tested, and then the bytes have arrived. Whether a put has
/// arrived can only be found out by a call that waits.
class MpiWindow {
 public:
  /// Collective. May hang (see Deadline). Throws std::runtime_error.
  MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes);
  /// Collective, unless it was released.
  ~MpiWindow();
  MpiWindow(const MpiWindow &) = delete;
  MpiWindow &operator=(const MpiWindow &) = delete;

  /// Begins access by all ranks. All must have a window.
  void open();
  /// Leaves the window to MPI_Finalize, because to free it would wait for ranks that have failed.
  void release() { window_ = MPI_WIN_NULL; }

  std::size_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> slot(std::size_t number) const { return {memory_ + number * slot_bytes_, slot_bytes_}; }

  /// Makes bytes that were written to this rank's slots visible to fetches.
  void publish() const { check(MPI_Win_sync(window_), "publishing a slot"); }
  /// Begins to fetch `target.size()` bytes from a slot of rank `from`.
  MPI_Request fetch(std::span<std::byte> target, int from, std::size_t slot) const;

 private:
  const std::size_t slots_, slot_bytes_;
  std::byte *memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  bool open_ = false;
};

/// Messages that the receiver fetches from a window of the sender. Each piece has at most the size of a slot.
///
///     receiver                                       sender
///     receive: a ticket ───────── tag ────────────►  send: takes the ticket; for each piece, when a slot is free:
///     header ◄──────────────── tag: ticket ────────  copies it to the slot, sends the slot's number
///     MPI_Rget from the slot
///     fetched ───────── tag: first_slot + slot ───►  the slot is free
///
/// A message takes slots only when its receiver has begun. So messages never wait for each other in a circle. Tickets keep the
/// order of messages of one tag. Pieces of one message arrive in order; pieces of different messages arrive in any order.
///
/// No call waits. Each call of advance() advances all messages under way at this rank.
class MpiGets {
 public:
  /// Uses both communicators and the window, and does not free them. Messages have at least one byte.
  MpiGets(MPI_Comm tickets_over, MPI_Comm pieces_over, MpiWindow &window);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  void advance();
  /// Returns true if a message has ended. Then its request must not be used again.
  bool over(outcrop_request request);
  /// Returns true if no message is under way.
  bool idle() const;
  /// Cancels messages under way. Afterwards this object must never be destroyed, because MPI may still use it. Returns false if
  /// MPI may also use memory that was passed to receive().
  bool abandon() noexcept;

  /// A bit that distinguishes requests of this class from others of the same transport.
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
    Sending *message = nullptr;  ///< the message that has a piece in it; null: the slot is free
    Header header;
    MPI_Request header_going = MPI_REQUEST_NULL, fetched = MPI_REQUEST_NULL;
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
  // MPI holds addresses of their elements, so the elements must not move.
  std::deque<Sending> sendings_;
  std::deque<Receiving> receivings_;
  std::vector<std::size_t> sendings_unused_, receivings_unused_;
  std::vector<Slot> slots_;
  std::vector<Ticket> tickets_;
  std::deque<Receiving *> without_ticket_;
};

/// Owns the communicators, the window and the messages, and probes them before their use.
class MpiOneSided {
 public:
  // These functions are collective and throw std::runtime_error.
  MpiOneSided(MPI_Comm original, std::size_t slot_bytes);
  void make_window();
  void open_window();
  /// Also throws if a message does not arrive in time. Then messages may still be under way.
  void probe(int rank, int size, std::chrono::duration<double> limit);

  /// Returns true if messages of this size are fetched from a window.
  bool takes(std::size_t bytes) const { return bytes > small_bytes_; }
  MpiGets &gets() { return *gets_; }

  /// Returns true if no message is under way.
  bool idle() const { return !gets_ || gets_->idle(); }
  /// Leaves everything to MPI_Finalize. Afterwards the destructor does not wait for other ranks.
  void release();
  /// See MpiGets::abandon(). Afterwards this object must never be destroyed.
  bool abandon() noexcept { return !gets_ || gets_->abandon(); }

 private:
  static constexpr std::size_t max_small_bytes = 4096, slots = 8;

  const std::size_t slot_bytes_, small_bytes_;
  Communicator tickets_over_, pieces_over_;
  std::optional<MpiWindow> window_;
  std::optional<MpiGets> gets_;
};

}  // namespace outcrop::aggregate
