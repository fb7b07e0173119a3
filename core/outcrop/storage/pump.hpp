// The thread that drives a store, so that compute threads never block in the system while submitting.
//
//     compute ──submit──► ring of requests ──┬─► reads, in order  ──┐   pieces of 2 MiB,
//             ◄──wait───                     └─► writes, in order ──┴─► at most 32 MiB in flight ──► Store
//
// Long requests are cut. Short ones that follow each other in the queue, in their file and in memory are joined: the system
// takes its time for every transfer, however short.
//
// A request may name another one that must be complete before it starts (the write that frees the slot a read fills);
// meanwhile requests of the other direction go on. Reads and writes that are ready take turns, piece by piece. Short
// transfers are continued, EAGAIN and EINTR repeated. The first failure stops the pump: no new transfer starts, those
// in flight are reaped, and every waiter gets that error. After construction nothing is allocated.
//
// Request number t lives in slot t mod capacity, so a slot is taken again only when its former request is complete, and
// a ticket older than `capacity` is complete by arithmetic.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "outcrop/storage/store.hpp"

namespace outcrop {

using Ticket = std::uint64_t;
constexpr Ticket no_ticket = 0;

/// Bytes to move between memory and a file of the store, once request `after` is complete: `length` of them, or `rows` times
/// `length`, a stride apart.
struct Request {
  bool write = false;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::byte *data = nullptr;
  std::size_t length = 0;
  Ticket after = no_ticket;
  std::size_t rows = 1;
  std::size_t file_stride = 0, data_stride = 0;
};

struct PumpOptions {
  std::size_t piece_bytes = std::size_t{2} << 20;
  std::size_t in_flight_bytes = std::size_t{32} << 20;
  std::size_t capacity = 1024;  ///< requests that may be unfinished; one more makes submit() wait
};

/// `store` must outlive the pump and belongs to it meanwhile. All functions may be called from any thread.
class Pump {
 public:
  explicit Pump(Store &store, const PumpOptions &options = {});

  /// Starts nothing more, waits for what is in flight, drops the rest.
  ~Pump();
  Pump(const Pump &) = delete;
  Pump &operator=(const Pump &) = delete;

  /// Puts a request in the queue. Its memory must stay until the request is complete or the pump is gone. Throws
  /// StorageError or Cancelled if the pump has stopped.
  Ticket submit(const Request &request);

  /// Waits until the request is complete; no_ticket always is. Throws StorageError or Cancelled if the pump has stopped.
  void wait(Ticket ticket);

  /// Waits until all requests are complete. Throws as wait() does.
  void drain();

  bool done(Ticket ticket) const;

  /// No transfer starts any more and all waiters throw Cancelled.
  void cancel();

  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

  /// Seconds during which at least one transfer was in flight.
  double seconds_busy() const { return seconds_busy_; }

 private:
  // One slot of the ring. Complete when `remaining` is 0; `issued` bytes have been cut into pieces.
  struct Entry {
    Request request;
    Ticket ticket = no_ticket;
    std::size_t issued = 0, remaining = 0;
    Ticket joined = no_ticket;  // the one behind it in the same piece
  };
  // A transfer in flight, or the rest of one that was short; `ticket` is the first one with bytes in it.
  struct Piece {
    Ticket ticket = no_ticket;
    Transfer transfer;
  };
  // Tickets of one direction that are not fully issued, in order.
  struct Queue {
    std::vector<Ticket> ring;
    std::size_t first = 0, count = 0;

    Ticket front() const { return ring[first]; }
    void push(Ticket ticket) { ring[(first + count++) % ring.size()] = ticket; }
    void pop() {
      first = (first + 1) % ring.size();
      --count;
    }
  };
  struct Failure {
    bool happened = false, write = false;
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    std::size_t length = 0;
    int error = 0;
  };

  void loop();
  void gather();
  bool gather_from(Queue &queue);
  void join(Queue &queue, Piece &piece);
  void credit(Piece &piece, std::size_t moved);
  void release(std::size_t number);
  void settle(const Completion &completion);
  void fail(const Transfer &transfer, int error);
  bool stopped() const { return stopping_ || cancelled_ || failure_.happened; }
  bool startable() const;
  bool complete(Ticket ticket) const;
  void throw_if_stopped() const;
  Entry &entry(Ticket ticket) { return entries_[ticket % entries_.size()]; }
  const Entry &entry(Ticket ticket) const { return entries_[ticket % entries_.size()]; }

  Store &store_;
  const PumpOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable work_;      // the pump's thread waits here
  std::condition_variable finished_;  // everybody else
  std::vector<Entry> entries_;
  std::array<Queue, 2> queues_;  // reads, writes
  Ticket last_ = no_ticket;
  std::size_t unfinished_ = 0;
  bool stopping_ = false, cancelled_ = false;
  Failure failure_;

  // Of the pump's thread alone.
  std::vector<Piece> pieces_;
  std::vector<std::size_t> free_pieces_, retries_;  // numbers of pieces; retries still count as in flight
  std::vector<Transfer> batch_;
  std::vector<Completion> completions_;
  std::size_t in_flight_ = 0, in_flight_bytes_ = 0;
  std::size_t turn_ = 0;  // whose piece is next
  bool again_ = false;    // the system asked to try later

  std::atomic<std::uint64_t> bytes_read_{0}, bytes_written_{0};
  std::atomic<double> seconds_busy_{0};
  std::thread thread_;
};

}  // namespace outcrop
