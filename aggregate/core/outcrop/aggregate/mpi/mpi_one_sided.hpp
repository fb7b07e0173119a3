// One-sided messages between ranks (RMA): receivers fetch messages from windows of the senders. With some versions of
// MPI, such fetches do not work. So this library tests fetches before it uses them, in four steps:
//
//     communicators ─► window ─► open ─► probe: each rank fetches from two others, and compares the bytes
//
// After each of these steps, every rank tells all other ranks whether the step has succeeded (mpi_transport.cpp). The
// ranks begin the next step only if the previous step has succeeded on all ranks.
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

/// A time limit for collective calls of MPI. With some versions of MPI, such a call hangs: it never returns, and then
/// no other call of MPI works, not even MPI_Finalize. So, after the time limit, the process prints one line with advice
/// for the user, and ends. Then mpirun ends the other processes.
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
  std::thread thread_;  // must be the last member, because the thread uses the members above
};

/// An MPI window. Each rank has memory that is divided into slots. All other ranks can read this memory, even while its
/// owner does not call MPI. Ranks fetch data (MPI_Rget) and never put data. The reason is that a fetch can be tested:
/// when the test succeeds, the bytes have arrived. For a put, only a call that waits can find out whether the bytes
/// have arrived.
class MpiWindow {
 public:
  /// Collective. The constructor may hang (see Deadline). Throws std::runtime_error.
  MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes);
  /// The destructor is collective, unless release() was called.
  ~MpiWindow();
  MpiWindow(const MpiWindow &) = delete;
  MpiWindow &operator=(const MpiWindow &) = delete;

  /// Begins access to the windows of all ranks. All ranks must have a window.
  void open();
  /// After this call, the destructor does not free the window, and so does not wait for ranks that have failed.
  /// MPI_Finalize frees the window.
  void release() { window_ = MPI_WIN_NULL; }

  std::size_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> slot(std::size_t number) const { return {memory_ + number * slot_bytes_, slot_bytes_}; }

  /// Makes bytes that were written to this rank's slots visible to fetches.
  void publish() const { check(MPI_Win_sync(window_), "publishing a slot"); }
  /// Begins to fetch `target.size()` bytes from slot `slot` of rank `from`.
  MPI_Request fetch(std::span<std::byte> target, int from, std::size_t slot) const;

 private:
  const std::size_t slots_, slot_bytes_;
  std::byte *memory_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
  bool open_ = false;
};

/// The receiver of a message fetches the message from a window of the sender, piece by piece. A piece fits into one
/// slot.
///
///     receiver                                       sender
///     receive: a ticket ───────── tag ────────────►  send: takes the ticket; for each piece, when a slot is free:
///     header ◄──────────────── tag: ticket ────────  copies it to the slot, sends the slot's number
///     MPI_Rget from the slot
///     fetched ───────── tag: first_slot + slot ───►  the slot is free
///
/// A message takes slots only after its receiver has begun to receive. So messages never wait for each other in a
/// circle. Tickets keep the messages with one tag in order. The pieces of one message arrive in order. Pieces of
/// different messages arrive in any order.
///
/// No function waits. Each call of advance() advances all messages of this rank that are under way.
class MpiGets {
 public:
  /// Does not own the communicators and the window: the caller frees them. Each message must have at least one byte.
  MpiGets(MPI_Comm tickets_over, MPI_Comm pieces_over, MpiWindow &window);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  void advance();
  /// Returns true if the message of this request has ended. After that, the caller must not use the request again.
  bool over(outcrop_request request);
  /// Returns true if no message is under way.
  bool idle() const;
  /// Cancels all messages that are under way. Afterwards this object must never be destroyed, because MPI may still use
  /// the object's memory. Returns false if MPI may also still use memory that a caller has passed to receive().
  bool abandon() noexcept;

  /// This bit is set in requests of this class, and in no other requests of the same transport.
  static constexpr outcrop_request mark = outcrop_request{1} << 63;

 private:
  static constexpr int max_tickets = 16384, first_slot = max_tickets;  // tags of pieces_over
  using Ticket = std::uint32_t;

  struct Header {
    std::uint64_t slot = 0, bytes = 0, bytes_of_message = 0;
  };
  struct Sending {
    std::span<const std::byte> rest;  ///< the bytes that are not in a slot yet
    std::size_t bytes = 0, slots = 0;
    int to = 0, tag = 0;
    Ticket ticket = 0;
    MPI_Request ticket_coming = MPI_REQUEST_NULL;
    bool busy = false;
  };
  struct Receiving {
    std::span<std::byte> rest;  ///< the bytes that are not fetched yet
    std::size_t bytes = 0;
    int from = 0, tag = 0;
    Ticket ticket = 0;
    Header header;
    MPI_Request ticket_going = MPI_REQUEST_NULL, header_coming = MPI_REQUEST_NULL, piece = MPI_REQUEST_NULL,
                fetched = MPI_REQUEST_NULL;
    bool busy = false, has_ticket = false, fetching = false;
  };
  struct Slot {
    Sending *message = nullptr;  ///< the message whose piece is in this slot; null if the slot is free
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
  // MPI holds addresses of the elements, so the elements must not move.
  std::deque<Sending> sendings_;
  std::deque<Receiving> receivings_;
  std::vector<std::size_t> sendings_unused_, receivings_unused_;
  std::vector<Slot> slots_;
  std::vector<Ticket> tickets_;
  std::deque<Receiving *> without_ticket_;
};

/// Owns the communicators, the window and the messages of one-sided communication. probe() tests them before they are
/// used.
class MpiOneSided {
 public:
  // The constructor, make_window(), open_window() and probe() are collective and throw std::runtime_error.
  MpiOneSided(MPI_Comm original, std::size_t slot_bytes);
  void make_window();
  void open_window();
  /// Sends test messages and compares their bytes. Also throws std::runtime_error if a message does not arrive within
  /// the time limit. In this case, messages may still be under way.
  void probe(int rank, int size, std::chrono::duration<double> limit);

  /// Returns true if messages of this size are fetched from a window, and false if they are sent.
  bool takes(std::size_t bytes) const { return bytes > small_bytes_; }
  MpiGets &gets() { return *gets_; }

  /// Returns true if no message is under way.
  bool idle() const { return !gets_ || gets_->idle(); }
  /// After this call, the destructor does not free the communicators and the window, so it does not wait for other
  /// ranks. MPI_Finalize frees them.
  void release();
  /// Does the same as MpiGets::abandon(). Afterwards this object must never be destroyed.
  bool abandon() noexcept { return !gets_ || gets_->abandon(); }

 private:
  static constexpr std::size_t max_small_bytes = 4096, slots = 8;

  const std::size_t slot_bytes_, small_bytes_;
  Communicator tickets_over_, pieces_over_;
  std::optional<MpiWindow> window_;
  std::optional<MpiGets> gets_;
};

}  // namespace outcrop::aggregate
