// The pump is the I/O thread. The pump submits transfers to a store, so that system calls never block compute threads.
//
//     compute ──submit──► ring of requests ──┬─► reads, in order  ──┐   chunks of 2 MiB,
//             ◄──wait───                     └─► writes, in order ──┴─► at most 32 MiB in flight ──► Store
//
// Long requests are divided into chunks. The pump joins short requests if they are neighbours in the queue and in the
// file. The memory of joined requests can be at different places. Fewer system calls take less time.
//
// A request can name an earlier request. Such a request starts only after the named request is complete. For example, a
// read into a slot starts after the write from that slot. A read that waits does not delay writes, and a write that
// waits does not delay reads. If a read and a write can both start, chunks of reads and chunks of writes alternate. The
// pump transfers the remaining bytes after a short transfer, and repeats a transfer after EAGAIN or EINTR. After the
// first failure, the pump starts no new transfer, waits for the transfers in flight, and reports the error to every
// thread that waits. The pump allocates no memory after its construction.
//
// Request number t is in entry t mod capacity. Request t reuses an entry only after the previous request in this entry,
// number t - capacity, is complete.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "outcrop/storage/store.hpp"

namespace outcrop {

using Ticket = std::uint64_t;
constexpr Ticket no_ticket = 0;

/// Transfers `rows` times `length` bytes between memory and a file of the store. The transfer starts only after the
/// request `after` is complete. `file_stride` and `data_stride` are the distances between rows in the file and in
/// memory.
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
  std::size_t chunk_bytes = std::size_t{2} << 20;
  std::size_t in_flight_bytes = std::size_t{32} << 20;
  std::size_t capacity = 1024;  ///< maximum number of unfinished requests; submit() waits if this number is reached
};

/// Runs the I/O thread. The store must exist longer than the pump. While the pump exists, no other code may use the
/// store. All functions are thread-safe.
class Pump {
 public:
  explicit Pump(Store &store, const PumpOptions &options = {});

  /// Waits for the transfers in flight. Requests that have not started are not performed.
  ~Pump();

  /// Appends a request to the queue. The memory of the request must stay valid until the request is complete or the
  /// pump is destroyed. If the pump has stopped, throws StorageError or Cancelled, as wait() and drain() do.
  Ticket submit(const Request &request);

  /// Waits until the request is complete. Does not wait for `no_ticket`.
  void wait(Ticket ticket);

  /// Waits until all requests are complete.
  void drain();

  bool done(Ticket ticket) const;

  /// Stops the pump. The pump starts no more transfers, and all threads that wait in a function of the pump throw
  /// Cancelled.
  void cancel();

  std::uint64_t bytes_read() const { return bytes_read_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

  /// Returns the time during which at least one transfer was in flight.
  double seconds_busy() const { return seconds_busy_; }

 private:
  // An entry of the ring. The entry contains a request. `issued` bytes of the request have been divided into chunks.
  // `remaining` bytes have not been transferred yet.
  struct QueuedRequest {
    Request request;
    Ticket ticket = no_ticket;
    std::size_t issued = 0, remaining = 0;
    Ticket joined = no_ticket;  // the next request in the same chunk
  };
  // A transfer in flight, or the remaining bytes of a short transfer. `ticket` is the number of the first request whose
  // bytes are in the chunk.
  struct Chunk {
    Ticket ticket = no_ticket;
    Transfer transfer;
  };
  // The requests of one direction, in the order of submission. A request leaves the queue when all of it is divided
  // into chunks.
  using TicketQueue = BoundedQueue<Ticket>;
  struct FailedTransfer {
    Transfer transfer;
    int error = 0;
  };

  void loop();
  void gather();
  bool gather_from(TicketQueue &queue);
  void join(TicketQueue &queue, Chunk &chunk);
  void credit(Chunk &chunk, std::size_t moved);
  bool uses_memory_of(const Chunk &chunk, const Request &request) const;
  bool add_memory(Transfer &whole, const Request &request);
  void release(std::size_t number);
  void settle(const Completion &completion);
  bool stopped() const { return stopping_ || cancelled_ || failure_.has_value(); }
  bool startable() const;
  bool complete(Ticket ticket) const;
  void throw_if_stopped() const;
  QueuedRequest &queued(Ticket ticket) { return requests_[ticket % requests_.size()]; }
  const QueuedRequest &queued(Ticket ticket) const { return requests_[ticket % requests_.size()]; }

  Store &store_;
  const PumpOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable work_;      // the I/O thread waits for this signal
  std::condition_variable finished_;  // all other threads wait for this signal
  std::vector<QueuedRequest> requests_;
  std::array<TicketQueue, 2> queues_;  // the queue of reads and the queue of writes
  Ticket last_ = no_ticket;
  std::size_t unfinished_ = 0;
  bool stopping_ = false, cancelled_ = false;
  std::optional<FailedTransfer> failure_;  // the first failure

  // Only the I/O thread uses the following members.
  std::vector<Chunk> chunks_;
  std::vector<iovec> parts_;                        // the parts of the memory of each chunk (Transfer::parts)
  std::vector<std::size_t> free_chunks_, retries_;  // indices in chunks_; chunks in retries_ are counted as in flight
  std::vector<Transfer> batch_;
  std::vector<Completion> completions_;
  std::size_t in_flight_ = 0, in_flight_bytes_ = 0;
  std::size_t turn_ = 0;  // the index in queues_ of the queue from which the next chunk comes
  bool again_ = false;    // true if the store has returned EAGAIN for a transfer

  std::atomic<std::uint64_t> bytes_read_{0}, bytes_written_{0};
  std::atomic<double> seconds_busy_{0};
  std::thread thread_;
};

}  // namespace outcrop
