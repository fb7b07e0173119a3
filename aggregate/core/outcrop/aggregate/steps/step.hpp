// A Step object performs one operation on one rank. The operation is a write or a read of one step of the program, or
// it moves no data. The object does four things: it copies this rank's bytes of each round, gives jobs to this rank's
// aggregators, exchanges messages with other nodes, and finds out the outcome.
//
//     begin ─┬─► copy: this rank's parts of its node's rounds     (the caller, or the copy thread beside it) ─┐
//            ├─► a job for each domain of this rank               (its I/O thread)                           ├─► the last arrives
//            └─► messages                                         (the caller, in test and wait)             ─┘     │
//     over ◄── outcome settled ◄── all ranks have arrived ◄─────────────────────────────────────────────────────────┘
//
// The setting seconds_most limits the time for which a caller waits. A caller waits in wait(). A caller that copies its
// own bytes also waits while no round is open. If a caller waits longer than seconds_most, all ranks of its node give
// up, and the copy threads and I/O threads of the node stop. The copy threads and I/O threads have no time limit of
// their own, because a caller can compute for any time between the start of an operation and wait().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/node.hpp"
#include "outcrop/aggregate/steps/engine.hpp"

namespace outcrop::aggregate {

/// The times of an operation on one rank, and the number of bytes that the rank's I/O threads have transferred.
struct Timing {
  double seconds = 0;           ///< time from the start of the operation until its outcome is known
  double seconds_copying = 0;   ///< time in which this rank copied its bytes to or from buffers
  double seconds_filling = 0;   ///< time in which this rank copied its bytes or waited for a buffer
  double seconds_storage = 0;   ///< time of the transfers from and to storage in this rank's I/O threads
  double seconds_messages = 0;  ///< time from the start of the operation until its last message has ended
  std::uint64_t bytes_storage = 0;

  /// Returns the time in which the rank copied and transferred at the same time, divided by the smaller of
  /// seconds_copying and seconds_storage. Returns no value if seconds_copying or seconds_storage is 0.
  std::optional<double> overlap() const;
};

// --- copying (messages.cpp) ----------------------------------------------------------------------------------------
// These functions copy the bytes of a pattern between a rank's memory, a buffer and a message. In a buffer, the bytes
// have the same order and the same gaps as in the file. A message has no gaps. If `write` is true, the bytes move from
// left to right, otherwise from right to left:
//
//     memory  ◄── copy_local ───► buffer       a rank of the same node
//     memory  ◄── copy_packed ──► message      a rank of another node
//
// `memory` has the address of each variable. `buffer` is the address at which the range begins in the buffer.

void copy_local(bool write, const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                std::byte *buffer);
/// Returns the number of copied bytes.
std::uint64_t copy_packed(bool write, const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                          std::byte *message);

/// Calls move(offset in the file, data, length) for each contiguous run. The function begins with the extent of index
/// `first`, and continues with extent 0 after the last extent. Within an extent, the runs are visited in the order of
/// the file.
template <typename Move>
void move_runs(const Pattern &pattern, std::span<std::byte *const> memory, std::uint64_t base, std::size_t first,
               Move &&move) {
  const std::span<const DeclaredExtent> extents = pattern.extents();
  for (std::size_t number = 0; number < extents.size(); ++number) {
    const DeclaredExtent &declared = extents[(first + number) % extents.size()];
    visit_batches(declared.extent, declared.hull, [&](const Batch &batch) {
      for (std::uint64_t i = 0; i < batch.count; ++i)
        move(base + batch.file + i * batch.file_stride,
             memory[declared.variable] + batch.memory + i * batch.memory_stride, batch.block);
    });
  }
}

// --- messages between nodes (messages.cpp) -------------------------------------------------------------------------

/// The messages of an operation. The messages go between ranks on different nodes. The aggregator of a domain sends or
/// receives each message. The partner of the aggregator is a rank that has bytes in a round of the domain, or a relay
/// of several such ranks (node.hpp). In a write, the partners pack and send their bytes. When the buffer of a round is
/// open, the aggregator copies each received message to its places in the buffer. In a read, the messages go in the
/// opposite direction. A few messages of each domain are under way at the same time, in the order of rounds. In a
/// write, the last byte of each message is 1 if a rank on the sender's node has no valid data, and 0 otherwise.
class Messages {
 public:
  /// `memory` contains the addresses of this rank's variables, or is empty if they are invalid. If `memory` is empty,
  /// the rank sends messages without valid data, and ignores the bytes that it receives.
  Messages(Engine &engine, Outcome &outcome, bool write, std::uint64_t base, std::uint64_t operation_of_data,
           std::span<std::byte *const> memory);

  /// Continues the messages as far as this is possible without waiting. Returns true if all messages have ended. Throws
  /// CommunicationError.
  bool advance();
  bool any() const { return !flows_.empty(); }

 private:
  /// A message that this rank is sending or receiving.
  struct Flight {
    std::vector<std::byte> data;
    outcrop_request request = 0;
    std::size_t item = 0;
    bool busy = false;
  };
  /// All messages of one domain that this rank exchanges as a sender, a relay or an aggregator. The messages are sorted
  /// by round.
  struct Flow {
    std::size_t items = 0, next = 0;
    std::function<bool(std::size_t item)> ready;  // returns true if the message may begin
    std::function<outcrop_request(std::size_t item, Flight &)> begin;
    std::function<void(std::size_t item, Flight &)> end;
    std::vector<Flight> flights;
    bool over = false;
  };
  /// The slots of a relay during an operation.
  struct RelaySlots {
    const RelayWork &work;
    const Node &node;
    std::uint64_t first = 0;       // the number of the first round of the operation
    std::uint64_t mark_bytes = 0;  // the same as Messages::mark_bytes()
    std::size_t next_open = 0;
    // Element i is 1 plus the index of the message that uses slot i, or 0 if no message uses the slot.
    std::array<std::size_t, max_buffers> user{};
    std::array<bool, max_buffers> arrived{};

    std::uint64_t number(std::size_t item) const { return first + work.messages[item].round; }
    std::size_t slot(std::size_t item) const { return number(item) % node.buffers(); }
    std::span<std::byte> bytes(std::size_t item) const;
    bool free(std::size_t item) const;
    void open(std::size_t item) const;
  };

  void add_contribution(const Contribution &contribution);
  void add_relay(const RelayWork &work);
  void add_domain(const DomainWork &work);
  bool advance(Flow &flow);
  std::uint64_t mark_bytes() const { return write_ ? 1 : 0; }

  Engine &engine_;
  Outcome &outcome_;
  const bool write_;
  const std::uint64_t shift_, operation_;
  const std::span<std::byte *const> memory_;
  std::vector<Flow> flows_;
};

// --- the step ------------------------------------------------------------------------------------------------------

/// The input of an operation. An operation of the kind `none` moves no data. An operation of this kind only reports the
/// failures of each rank to all ranks.
struct Task {
  enum Kind { none, write, read } kind = none;
  std::uint64_t base = 0;
  bool durable = false;
  std::vector<std::byte *> memory;  ///< the address of each variable; empty if the memory is invalid
  Failure failure;                  ///< an error that occurred before the operation began
  /// the number of steps that were written to the file before this operation began
  std::uint64_t step = 0;
  std::vector<std::shared_ptr<Sink>> sinks;  ///< the sink of each domain of this rank
  std::function<void()> succeeded = {};      ///< called when it is known that the operation has succeeded on all ranks
};

/// An operation at this rank. The engine must outlive the step.
class Step : public std::enable_shared_from_this<Step> {
 public:
  Step(Engine &engine, Task task);

  /// All ranks must call this function. Begins the operation. If `beside` is true or the ranks are on several nodes,
  /// the copy thread copies this rank's bytes. Otherwise this function copies them.
  void start(bool beside);
  bool test();
  void wait();
  /// Waits until the outcome is known. Throws no error, even if the operation of this step has failed.
  void settle();
  Timing timing() const;

  /// The engine calls this function. Returns true if this rank has no more work for the step.
  bool advance();
  bool sends() const { return !messages_over_ || outcome_->sends(); }
  void finish();  ///< the engine calls finish() when the outcome of the operation is known

 private:
  using Clock = std::chrono::steady_clock;

  void run_local();
  void post_jobs();
  void job_done(Sink &sink, JobResult result);
  void part_done();
  void copy_rounds();
  bool move_own();
  void copy_round(const Contribution &contribution, std::size_t index);
  void notify_opener(const Contribution &contribution);
  template <typename Act>
  auto or_break_off(Act &&act);
  void advance_all();
  std::uint32_t microseconds_left(Clock::time_point begin) const;
  std::string who() const { return "rank " + std::to_string(engine_.link.rank()) + " cannot continue: "; }

  Engine &engine_;
  Task task_;
  std::uint64_t data_number_ = 0;
  bool own_moved_ = false;  // true if move_own() has moved the bytes of this rank
  bool helped_ = false;     // true if the copy thread copies the bytes; this thread has no time limit
  std::optional<Outcome> outcome_;
  std::optional<Messages> messages_;
  std::atomic<std::uint32_t> parts_{0};
  bool messages_over_ = false, over_ = false;
  Failure failure_;
  Clock::time_point begun_;
  double seconds_ = 0, seconds_messages_ = 0;
  std::atomic<double> seconds_copying_{0}, seconds_filling_{0}, seconds_storage_{0};
  std::atomic<std::uint64_t> bytes_storage_{0};
};

}  // namespace outcrop::aggregate
