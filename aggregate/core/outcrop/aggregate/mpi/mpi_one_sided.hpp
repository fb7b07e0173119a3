// One-sided messages between ranks (RMA). The receivers fetch the messages from windows in the memory of the senders.
// RMA fetches do not work with some versions of MPI. So before this library uses fetches, it tests them in four steps:
//
//     communicators ─► window ─► open ─► probe: each rank fetches from two others, and compares the bytes
//
// After each of these steps, every rank tells all other ranks whether the step has succeeded (mpi_transport.cpp). The
// ranks begin a step only if the previous step has succeeded on all ranks.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

/// A time limit for collective calls of MPI. With some versions of MPI, a collective call may never return. After such
/// a hang, no other call of MPI works, not even MPI_Finalize. If the time limit passes, the process therefore prints
/// one line with advice for the user, and ends. Then mpirun ends the other processes.
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
/// owner does not call MPI. Ranks fetch data (MPI_Rget). They never put data into the memory of another rank. MPI has a
/// test that tells a rank whether the bytes of a fetch have arrived. The test does not wait. MPI has no such test for a
/// put.
class MpiWindow {
 public:
  /// All ranks must call the constructor. The constructor may hang (see Deadline). Throws std::runtime_error.
  MpiWindow(MPI_Comm communicator, std::size_t slots, std::size_t slot_bytes) : slots_(slots), slot_bytes_(slot_bytes) {
    const auto bytes = static_cast<MPI_Aint>(slots * slot_bytes);
    check(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, communicator, &memory_, &window_), "making a window");
    check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "setting the error handler of a window");
  }
  /// All ranks must destroy the object together, unless release() was called.
  ~MpiWindow() {
    if (window_ == MPI_WIN_NULL) return;
    if (open_) MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  MpiWindow(const MpiWindow &) = delete;
  MpiWindow &operator=(const MpiWindow &) = delete;

  /// Begins access to the windows of all ranks. Before this call, all ranks must have made their windows. The windows
  /// must have MPI's unified memory model. In MPI's separate memory model, other ranks see new data in a window only
  /// after the owner has locked the window.
  void open() {
    int *model = nullptr, found = 0;
    check(MPI_Win_get_attr(window_, MPI_WIN_MODEL, &model, &found), "asking for the memory model of a window");
    if (found == 0 || *model != MPI_WIN_UNIFIED) throw std::runtime_error("windows do not have a unified memory model");
    check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "beginning access to a window");
    open_ = true;
  }
  /// After release(), the destructor does not free the window, so it does not wait for ranks that have failed.
  /// MPI_Finalize frees the window.
  void release() { window_ = MPI_WIN_NULL; }

  std::size_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> slot(std::size_t number) const { return {memory_ + number * slot_bytes_, slot_bytes_}; }

  /// Makes this rank's slots, and all bytes that this rank has written to the slots, visible to other ranks.
  void publish() const { check(MPI_Win_sync(window_), "publishing a slot"); }
  /// Begins to fetch `target.size()` bytes from the slot with the number `slot` of rank `from`.
  MPI_Request fetch(std::span<std::byte> target, int from, std::size_t slot) const {
    MPI_Request request = MPI_REQUEST_NULL;
    const int bytes = static_cast<int>(target.size());
    const auto at = static_cast<MPI_Aint>(slot * slot_bytes_);
    check(MPI_Rget(target.data(), bytes, MPI_BYTE, from, at, bytes, MPI_BYTE, window_, &request), "fetching");
    return request;
  }

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
/// A message occupies slots only after its receiver has begun to receive the message. Therefore no message waits
/// forever for slots that another message occupies. A ticket is a number that the receiver gives to a message. The
/// sender uses the ticket as the tag of the message's headers. The tickets also keep messages with the same tag in
/// order. The pieces of one message arrive in order, but pieces of different messages may arrive in any order.
///
/// No function of this class waits. Each call of advance() continues all messages that this rank sends or receives.
class MpiGets {
 public:
  /// The caller owns and frees the communicators and the window. A message must have at least one byte.
  MpiGets(MPI_Comm tickets_over, MPI_Comm pieces_over, MpiWindow &window)
      : tickets_over_(tickets_over), pieces_over_(pieces_over), window_(window), slots_(window.slots()) {
    for (Ticket ticket = max_tickets; ticket-- > 0;) tickets_.push_back(ticket);
  }

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag) {
    const std::size_t index = unused_of(sendings_, sendings_unused_);
    Sending &message = sendings_[index];
    message = {{data, bytes}, bytes, 0, to, tag, 0, MPI_REQUEST_NULL, true};
    check(MPI_Irecv(&message.ticket, sizeof message.ticket, MPI_BYTE, to, tag, tickets_over_, &message.ticket_coming),
          text(message));
    return mark | sends | index;
  }

  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag) {
    const std::size_t index = unused_of(receivings_, receivings_unused_);
    Receiving &message = receivings_[index];
    message = {};
    message.rest = {data, bytes};
    message.bytes = bytes;
    message.from = from;
    message.tag = tag;
    message.busy = true;
    without_ticket_.push_back(&message);
    if (without_ticket_.size() == 1 && !tickets_.empty()) give_ticket(message);
    return mark | index;
  }

  void advance() {
    free_slots();
    for (Sending &message : sendings_)
      if (message.busy && !message.rest.empty() && finished(message.ticket_coming, message)) fill_slots(message);
    while (!without_ticket_.empty() && !tickets_.empty()) give_ticket(*without_ticket_.front());
    for (Receiving &message : receivings_)
      if (message.busy) advance(message);
  }

  /// Returns true if the message of this request has ended. After this function has returned true, the caller must not
  /// use the request any more.
  bool over(outcrop_request request) {
    const auto index = static_cast<std::size_t>(request & ~(mark | sends));
    if ((request & sends) != 0) {
      Sending &message = sendings_[index];
      if (!message.rest.empty() || message.slots > 0) return false;
      message.busy = false;
      sendings_unused_.push_back(index);
      return true;
    }
    Receiving &message = receivings_[index];
    if (!message.rest.empty() || !finished(message.ticket_going, message) || !finished(message.fetched, message))
      return false;
    message.busy = false;
    tickets_.push_back(message.ticket);
    receivings_unused_.push_back(index);
    return true;
  }

  /// Returns true if this rank sends and receives no message at present.
  bool idle() const {
    const auto busy = [](const auto &message) { return message.busy; };
    return std::ranges::none_of(sendings_, busy) && std::ranges::none_of(receivings_, busy);
  }

  /// Cancels all messages that this rank sends or receives. After abandon(), this object must never be destroyed,
  /// because MPI may still use the object's memory. Returns false if MPI may still write to memory that a caller of
  /// receive() has passed.
  bool abandon() noexcept {
    const auto deadline = deadline_of_abandoned();
    bool all_fetched = true;
    for (Receiving &message : receivings_) {
      all_fetched = ends_before(deadline, message.piece, false) && all_fetched;
      ends_before(deadline, message.header_coming, true);
    }
    for (Sending &message : sendings_) ends_before(deadline, message.ticket_coming, true);
    for (Slot &slot : slots_) ends_before(deadline, slot.fetched, true);
    return all_fetched;
  }

  /// Only requests of this class have this bit. Other requests of the same transport do not have it.
  static constexpr outcrop_request mark = outcrop_request{1} << 63;

 private:
  static constexpr outcrop_request sends = outcrop_request{1} << 62;  // this bit is set in requests of send()
  // tags in pieces_over_: first the tickets, then one tag for each slot
  static constexpr int max_tickets = 16384, first_slot = max_tickets;
  using Ticket = std::uint32_t;

  struct Header {
    std::uint64_t slot = 0, bytes = 0, bytes_of_message = 0;
  };
  struct Sending {
    std::span<const std::byte> rest;  ///< the bytes that have not been copied to a slot yet
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
  static std::size_t unused_of(std::deque<Message> &all, std::vector<std::size_t> &unused) {
    if (unused.empty()) {
      unused.push_back(all.size());
      all.emplace_back();
    }
    const std::size_t index = unused.back();
    unused.pop_back();
    return index;
  }

  template <typename Message>
  bool finished(MPI_Request &request, const Message &message) {
    int done = 0;
    if (const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS) check(code, text(message));
    return done != 0;
  }

  static std::string text(const Sending &message) {
    return "sending " + std::to_string(message.bytes) + " bytes to rank " + std::to_string(message.to) + " with tag " +
           std::to_string(message.tag) + " by a window";
  }

  static std::string text(const Receiving &message) {
    return "fetching " + std::to_string(message.bytes) + " bytes from rank " + std::to_string(message.from) +
           " with tag " + std::to_string(message.tag);
  }

  void give_ticket(Receiving &message) {
    without_ticket_.pop_front();
    message.ticket = tickets_.back();
    tickets_.pop_back();
    message.has_ticket = true;
    check(MPI_Isend(&message.ticket, sizeof message.ticket, MPI_BYTE, message.from, message.tag, tickets_over_,
                    &message.ticket_going),
          text(message));
    ask_for_header(message);
  }

  void ask_for_header(Receiving &message) {
    check(MPI_Irecv(&message.header, sizeof message.header, MPI_BYTE, message.from, static_cast<int>(message.ticket),
                    pieces_over_, &message.header_coming),
          text(message));
  }

  void free_slots() {
    for (Slot &slot : slots_) {
      if (slot.message == nullptr) continue;
      if (!finished(slot.header_going, *slot.message) || !finished(slot.fetched, *slot.message)) continue;
      --slot.message->slots;
      slot.message = nullptr;
    }
  }

  void fill_slots(Sending &message) {
    for (std::size_t number = 0; number < slots_.size() && !message.rest.empty(); ++number) {
      Slot &slot = slots_[number];
      if (slot.message != nullptr) continue;
      const std::span<const std::byte> piece = message.rest.first(std::min(message.rest.size(), window_.slot_bytes()));
      std::memcpy(window_.slot(number).data(), piece.data(), piece.size());
      window_.publish();
      slot.message = &message;
      ++message.slots;
      message.rest = message.rest.subspan(piece.size());
      slot.header = {number, piece.size(), message.bytes};
      check(MPI_Irecv(nullptr, 0, MPI_BYTE, message.to, first_slot + static_cast<int>(number), pieces_over_,
                      &slot.fetched),
            text(message));
      check(MPI_Isend(&slot.header, sizeof slot.header, MPI_BYTE, message.to, static_cast<int>(message.ticket),
                      pieces_over_, &slot.header_going),
            text(message));
    }
  }

  void fetch(Receiving &message) {
    const Header &header = message.header;
    if (header.bytes_of_message != message.bytes || header.bytes > message.rest.size())
      throw std::runtime_error(text(message) + ": a message of " + std::to_string(header.bytes_of_message) +
                               " bytes arrived");
    message.piece = window_.fetch(message.rest.first(header.bytes), message.from, header.slot);
    message.fetching = true;
  }

  void advance(Receiving &message) {
    if (!message.has_ticket || message.rest.empty()) return;
    if (!message.fetching) {
      if (!finished(message.header_coming, message)) return;
      fetch(message);
    }
    // The request `fetched` of the previous piece must have ended, because this function uses the request again.
    if (!finished(message.piece, message) || !finished(message.fetched, message)) return;
    message.fetching = false;
    message.rest = message.rest.subspan(message.header.bytes);
    check(MPI_Isend(nullptr, 0, MPI_BYTE, message.from, first_slot + static_cast<int>(message.header.slot),
                    pieces_over_, &message.fetched),
          text(message));
    if (!message.rest.empty()) ask_for_header(message);
  }

  MPI_Comm tickets_over_, pieces_over_;
  MpiWindow &window_;
  // MPI holds the addresses of the elements, so the elements must not move in memory.
  std::deque<Sending> sendings_;
  std::deque<Receiving> receivings_;
  std::vector<std::size_t> sendings_unused_, receivings_unused_;
  std::vector<Slot> slots_;
  std::vector<Ticket> tickets_;
  std::deque<Receiving *> without_ticket_;
};

/// Owns the communicators, the window and the messages of one-sided communication. probe() tests one-sided
/// communication before the transport uses it.
class MpiOneSided {
 public:
  // All ranks must call the constructor, make_window(), open_window() and probe(). Each of these calls throws
  // std::runtime_error if it fails.
  MpiOneSided(MPI_Comm original, std::size_t slot_bytes)
      : slot_bytes_(slot_bytes),
        small_bytes_(std::min(max_small_bytes, slot_bytes / 4)),
        tickets_over_(original),
        pieces_over_(original) {}

  void make_window() { window_.emplace(pieces_over_.value, slots, slot_bytes_); }
  void open_window() {
    window_->open();
    gets_.emplace(tickets_over_.value, pieces_over_.value, *window_);
  }
  /// Sends test messages, and checks that the bytes arrive unchanged. Throws std::runtime_error if the bytes differ or
  /// if a test message does not arrive within the time limit. After such an error, some test messages may not have
  /// ended.
  void probe(int rank, int size, std::chrono::duration<double> limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    const std::size_t bytes = slots * slot_bytes_ + slot_bytes_ / 2;  // this test message is larger than a window
    for (const int steps : {1, size / 2}) {
      const int to = (rank + steps) % size, from = (rank + size - steps) % size;
      const std::vector<std::byte> sent = content(bytes, rank, to);
      std::vector<std::byte> came(bytes);
      outcrop_request sending = gets_->send(sent.data(), bytes, to, 0),
                      receiving = gets_->receive(came.data(), bytes, from, 0);
      for (Backoff backoff(WaitPolicy{true}); sending != 0 || receiving != 0; backoff.pause()) {
        gets_->advance();
        if (sending != 0 && gets_->over(sending)) sending = 0;
        if (receiving != 0 && gets_->over(receiving)) receiving = 0;
        if (std::chrono::steady_clock::now() > deadline)
          throw std::runtime_error("a message from rank " + std::to_string(from) + " or to rank " + std::to_string(to) +
                                   " does not end");
      }
      if (came != content(bytes, from, rank))
        throw std::runtime_error("the bytes that arrived from rank " + std::to_string(from) +
                                 " differ from the bytes sent");
    }
  }

  /// Returns true if receivers fetch messages of this size from windows, and false if such messages are ordinary MPI
  /// messages.
  bool takes(std::size_t bytes) const { return bytes > small_bytes_; }
  MpiGets &gets() { return *gets_; }

  /// Returns true if this rank sends and receives no message at present.
  bool idle() const { return !gets_ || gets_->idle(); }
  /// After abandon(), the destructor frees neither the communicators nor the window, so it does not wait for other
  /// ranks. MPI_Finalize frees them.
  void release() {
    if (window_) window_->release();
    tickets_over_.release();
    pieces_over_.release();
  }
  /// Calls MpiGets::abandon(), and returns its result. An abandoned object must never be destroyed.
  bool abandon() noexcept { return !gets_ || gets_->abandon(); }

 private:
  static constexpr std::size_t max_small_bytes = 4096, slots = 8;

  // Returns test bytes, which are different for each pair of ranks.
  static std::vector<std::byte> content(std::size_t bytes, int from, int to) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      made[i] =
          static_cast<std::byte>(i * 7 + i / 251 + static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to));
    return made;
  }

  const std::size_t slot_bytes_, small_bytes_;
  Communicator tickets_over_, pieces_over_;
  std::optional<MpiWindow> window_;
  std::optional<MpiGets> gets_;
};

}  // namespace outcrop::aggregate
