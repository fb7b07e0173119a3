// Pump: the I/O thread. It drives one Store, so that compute threads never block in a submission.
//
//     submit ─► reads:  [r7 r8 r9 ...]  ─┐ the older head first; one that waits for `after`   ┌─► store ─┐
//     submit ─► writes: [w4 w6 ...]     ─┴─► lets the other direction pass ─► pieces in flight┘          │
//     wait  ◄─── ticket done ◄─── all pieces moved ◄─── short ones go on, EAGAIN and EINTR again ◄───────┘
//
// Requests are cut into pieces; at most `in_flight_bytes` (and Store::depth() pieces) are at the store at a time. Tickets
// are dense: the request with ticket t lives in slot t mod capacity, so nothing is allocated after construction, and
// a ticket whose slot has been taken by a later one is known to be done.
//
// The first error stops the pump: no new transfer starts, those in flight are reaped, and every wait() throws it.
// Cancelling does the same with Cancelled. A caller that gets an exception must destroy the pump (which
// reaps what is in flight) before it may free or reuse the memory of unfinished requests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "outcrop/storage/store.hpp"

namespace outcrop {

/// Number of a request: 1, 2, 3, ... in order of submission.
using Ticket = std::uint64_t;
constexpr Ticket no_ticket = 0;  ///< always done

/// One move of any length. `data` must stay valid until the ticket is done. A request starts when `after` is done.
struct Request {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte *data = nullptr;
  std::size_t length = 0;
  Ticket after = no_ticket;
};

struct PumpOptions {
  std::size_t piece_bytes = std::size_t{2} << 20;       ///< longest transfer handed to the store
  std::size_t in_flight_bytes = std::size_t{32} << 20;  ///< at the store together; at least one piece always is
  std::size_t capacity = 256;                           ///< unfinished requests; submit() blocks beyond
};

class Pump {
 public:
  /// Takes all memory it will need and starts the thread. The store must outlive the pump and have no other user.
  explicit Pump(Store &store, const PumpOptions &options = {});

  /// Starts nothing new, reaps what is in flight, joins the thread. Requests not yet started are dropped.
  ~Pump();
  Pump(const Pump &) = delete;
  Pump &operator=(const Pump &) = delete;

  /// Queues a request; from any thread. Blocks only while `capacity` requests are unfinished. Throws like wait().
  Ticket submit(const Request &request);

  /// Blocks until the request is done. Throws StorageError (path, offset, length and errno of the piece) when this
  /// or any other request has failed, Cancelled after cancel().
  void wait(Ticket ticket);

  /// True when every byte of the request has been moved; never blocks for I/O.
  bool done(Ticket ticket) const;

  /// Waits for everything submitted so far. Throws like wait().
  void drain();

  /// No new transfers start and every waiter throws Cancelled; from any thread, more than once if need be.
  void cancel();

  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }
  /// Seconds during which at least one transfer was in flight.
  double seconds_busy() const { return seconds_busy_.load(std::memory_order_relaxed); }

 private:
  struct Slot {  // an unfinished request, or the last one that used the place
    Request request;
    std::size_t started = 0;  // bytes handed out as pieces
    std::size_t moved = 0;
  };
  struct Piece {  // a transfer in flight, or waiting to go on
    Ticket ticket = no_ticket;
    std::size_t begin = 0;  // within the request
    std::size_t length = 0;
    int retries = 0;  // in a row, without a byte moved
  };
  struct Queue {  // tickets of one direction that are not wholly started: a ring of `capacity`
    std::vector<Ticket> tickets;
    std::size_t first = 0, count = 0;
  };
  struct Failure {
    bool write;
    std::string path;
    std::uint64_t offset, length;
    int error;
  };

  void serve();
  bool stopped() const { return stopping_ || cancelled_ || failure_; }
  bool finished(Ticket ticket) const;
  Slot &slot(Ticket ticket) { return slots_[ticket % slots_.size()]; }
  const Slot &slot(Ticket ticket) const { return slots_[ticket % slots_.size()]; }
  Queue *next_queue();
  void collect_pieces();
  void add_to_batch(std::size_t index);
  bool complete(const Completion &completion);
  bool go_on(std::size_t index);
  void release(std::size_t index);
  void fail(const Piece &piece, int error);
  void throw_if_broken() const;
  void wake_thread();

  Store &store_;
  const std::size_t piece_bytes_;

  mutable std::mutex mutex_;  // guards everything down to the counters
  std::condition_variable work_, progress_;
  std::vector<Slot> slots_;
  Queue reads_, writes_;
  std::vector<Piece> pieces_;              // tag of a transfer = index here
  std::vector<std::size_t> free_, again_;  // pieces not in use; pieces to hand to the store once more
  std::vector<Transfer> batch_;
  std::size_t in_flight_ = 0;
  Ticket last_ = no_ticket;
  std::uint64_t finished_ = 0;
  bool asleep_ = false;   // the thread waits for work_
  bool reaping_ = false;  // the thread may be blocked in Store::reap
  bool stopping_ = false, cancelled_ = false;
  std::optional<Failure> failure_;

  std::atomic<std::uint64_t> bytes_read_{0}, bytes_written_{0};
  std::atomic<double> seconds_busy_{0};
  std::thread thread_;  // last: starts when all else is ready
};

}  // namespace outcrop
