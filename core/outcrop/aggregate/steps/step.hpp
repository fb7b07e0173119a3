// One operation at one rank: filling (or emptying) the rounds of this rank's node, jobs for its aggregators, messages, and
// the outcome.
//
//     begin ─┬─► fill: this rank's parts of its node's rounds     (the caller, or the helper beside it)   ─┐
//            ├─► a job for each domain of this rank               (its I/O thread)                        ├─► the last arrives
//            └─► messages                                         (the caller, in test and wait)          ─┘     │
//     over ◄── outcome settled ◄── all ranks have arrived ◄──────────────────────────────────────────────────────┘
//
// The setting seconds_most limits the waiting of callers: in filling without anything to copy, and in wait. Who is late gives
// up for its whole node, and that ends the threads beside callers, which have no limits of their own: a caller may compute for
// as long as it likes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/node/outcome.hpp"
#include "outcrop/aggregate/steps/engine.hpp"
#include "outcrop/aggregate/steps/messages.hpp"
#include "outcrop/aggregate/steps/timing.hpp"

namespace outcrop::aggregate {

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

/// Whoever holds a step and uses it keeps the engine, too; threads of the engine hold steps only.
class Step : public std::enable_shared_from_this<Step> {
 public:
  Step(Engine &engine, Task task);

  /// Collective. `beside`: this rank's copying is done by the helper, else by this call.
  void start(bool beside);
  bool test();
  void wait();
  /// Until the outcome is known, which is not thrown.
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
  void fill_rounds();
  bool move_own();
  void copy_round(const Contribution &contribution, std::size_t index);
  void tell_last(const Contribution &contribution);
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
  bool is_helped_ = false;  // the helper copies, and the caller's waiting is what ends it
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
