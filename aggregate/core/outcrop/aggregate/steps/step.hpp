// One operation at one rank: copying its parts of its node's rounds, jobs for its aggregators, messages between nodes, and
// the outcome.
//
//     begin ─┬─► copy: this rank's parts of its node's rounds     (the caller, or the copy thread beside it) ─┐
//            ├─► a job for each domain of this rank               (its I/O thread)                           ├─► the last arrives
//            └─► messages                                         (the caller, in test and wait)             ─┘     │
//     over ◄── outcome settled ◄── all ranks have arrived ◄─────────────────────────────────────────────────────────┘
//
// The setting seconds_most limits the waiting of callers: while they copy and no round is open, and in wait(). A rank that is
// too late gives up for its whole node. That ends the threads beside callers, which have no limits of their own, because a
// caller may compute for any time.
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

#include "outcrop/aggregate/node/outcome.hpp"
#include "outcrop/aggregate/steps/engine.hpp"

namespace outcrop::aggregate {

/// The cost of an operation at one rank, in seconds and bytes.
struct Timing {
  double seconds = 0;           ///< from its begin until the outcome was known
  double seconds_copying = 0;   ///< at work on this rank's parts of buffers
  double seconds_filling = 0;   ///< copying, and waiting for room
  double seconds_storage = 0;   ///< of the I/O threads of this rank at work
  double seconds_messages = 0;  ///< while messages were under way
  std::uint64_t bytes_storage = 0;
};

// --- messages between nodes (messages.cpp) -------------------------------------------------------------------------

/// The messages of an operation: for each round of a domain, one between the aggregator and each rank of another node with
/// bytes in it, or each relay (node.hpp).
///
/// Writing, ranks pack and send, and the aggregator copies what it receives to its places in the round's buffer, once that is
/// open. Reading goes the other way. Of each domain a few messages are under way at a time, in the order of rounds.
class Messages {
 public:
  /// `memory`: addresses of this rank's variables. Empty if they did not fit: then zeros are sent and nothing is kept.
  Messages(Engine &engine, bool write, std::uint64_t base, std::uint64_t operation_of_data,
           std::span<std::byte *const> memory);

  /// Moves on as far as it goes without waiting; true when all is over. Throws CommunicationError.
  bool advance();
  bool any() const { return !flows_.empty(); }

 private:
  /// A message under way.
  struct Flight {
    std::vector<std::byte> data;
    outcrop_request request = 0;
    std::size_t item = 0;
    bool busy = false;
  };
  /// Messages of one domain in one role, in order.
  struct Flow {
    std::size_t items = 0, next = 0;
    std::function<bool(std::size_t item)> ready;  // may it begin?
    std::function<outcrop_request(std::size_t item, Flight &)> begin;
    std::function<void(std::size_t item, Flight &)> end;
    std::vector<Flight> flights;
    bool over = false;
  };
  /// The slots of a relay during an operation.
  struct RelaySlots {
    const RelayWork &work;
    const Node &node;
    std::uint64_t first = 0;  // round of the operation
    std::size_t next_open = 0;
    std::array<std::size_t, max_buffers> user{};  // the message that has each slot, + 1
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

  Engine &engine_;
  const bool write_;
  const std::uint64_t shift_, operation_;
  const std::span<std::byte *const> memory_;
  std::vector<Flow> flows_;
};

// --- the step ------------------------------------------------------------------------------------------------------

/// What an operation is to do. One without data carries a failure, or none, to all ranks.
struct Task {
  enum Kind { none, write, read } kind = none;
  std::uint64_t base = 0;
  bool durable = false;
  std::vector<std::byte *> memory;           ///< of each variable; empty when it does not fit
  Failure failure;                           ///< known before it begins
  std::uint64_t step = 0;                    ///< of writing, numbered through those of the file
  std::vector<std::shared_ptr<Sink>> sinks;  ///< for each domain of this rank
};

/// A user of a step must also keep the engine. Threads of the engine keep steps only.
class Step : public std::enable_shared_from_this<Step> {
 public:
  Step(Engine &engine, Task task);

  /// Collective. `beside`: the copy thread does this rank's copying; else this call does.
  void start(bool beside);
  bool test();
  void wait();
  /// Returns when the outcome is known, and does not throw it.
  void settle();
  Timing timing() const;

  // For the engine.
  void run_local();
  bool advance();  ///< true when this rank has nothing more to do for it
  bool sends() const { return !messages_over_ || outcome_->sends(); }
  bool over() const { return over_; }
  void finish();  ///< the outcome is known

 private:
  using Clock = std::chrono::steady_clock;

  void post_jobs();
  void job_done(Sink &sink, Failure failure, double seconds, std::uint64_t bytes);
  void part_done();
  void copy_rounds();
  bool move_own();
  void copy_round(const Contribution &contribution, std::size_t index);
  void notify_opener(const Contribution &contribution);
  void copy_to_slot(const Contribution &contribution, std::size_t index);
  template <typename Act>
  auto or_break_off(Act &&act);
  void advance_all();
  std::uint32_t microseconds_left(Clock::time_point begin) const;
  std::string who() const { return "rank " + std::to_string(engine_.link.rank()) + " cannot go on: "; }

  Engine &engine_;
  Task task_;
  std::uint64_t number_ = 0, data_number_ = 0;
  bool own_moved_ = false;  // this rank's domain was moved straight from its memory
  bool helped_ = false;     // the copy thread copies, and the caller's waiting is what ends it
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
