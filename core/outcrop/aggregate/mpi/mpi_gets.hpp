// Messages that the receiver fetches from a window of the sender, in pieces of a slot.
//
//     receiver                                       sender
//     receive: a ticket ───────── tag ────────────►  send: takes the ticket; for each piece, when a slot is free:
//     header ◄──────────────── tag: ticket ────────  copies it there, says in which slot it is
//     MPI_Rget from the slot
//     fetched ───────── tag: first_slot + slot ───►  the slot is free
//
// Slots are taken only for messages that somebody receives, so messages never wait in a circle. Tickets keep the order of
// messages of one tag; pieces of a message come in order, those of different messages as it happens.
//
// Nothing here waits. What is under way at a rank moves when it calls advance(), for whichever message.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/mpi/mpi_window.hpp"
#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

class MpiGets {
 public:
  /// Uses both communicators and the window, and frees none. Messages have at least a byte.
  MpiGets(MPI_Comm tickets_over, MPI_Comm pieces_over, MpiWindow &window);

  outcrop_request send(const std::byte *data, std::size_t bytes, int to, int tag);
  outcrop_request receive(std::byte *data, std::size_t bytes, int from, int tag);

  void advance();
  /// Whether it is over; the request is used up then.
  bool over(outcrop_request request);
  /// Whether nothing is under way.
  bool is_idle() const;
  /// Cancels what is under way; this object must stay for ever then, as MPI may still use it. False when it may also use
  /// memory that was given to receive().
  bool abandon() noexcept;

  /// Requests of this class, among others of the same transport.
  static constexpr outcrop_request mark = outcrop_request{1} << 63;

 private:
  static constexpr int tickets_most = 16384, first_slot = tickets_most;  // tags of pieces_over
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
    bool is_busy = false;
  };
  struct Receiving {
    std::span<std::byte> rest;  ///< not fetched yet
    std::size_t bytes = 0;
    int from = 0, tag = 0;
    Ticket ticket = 0;
    Header header;
    MPI_Request ticket_going = MPI_REQUEST_NULL, header_coming = MPI_REQUEST_NULL, piece = MPI_REQUEST_NULL,
                fetched = MPI_REQUEST_NULL;
    bool is_busy = false, has_ticket = false, is_fetching = false;
  };
  struct Slot {
    Sending *message = nullptr;  ///< whose piece it holds; none: it is free
    Header header;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};  // the header goes; it has been fetched
  };

  template <typename Message>
  bool is_done(MPI_Request &request, const Message &message);
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

}  // namespace outcrop::aggregate
