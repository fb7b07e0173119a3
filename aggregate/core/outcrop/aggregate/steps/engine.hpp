// What a rank keeps of a plan: its parts of domains, its I/O threads (aggregators), and the operations that are under way.
//
// An aggregator is the I/O thread of one domain. It writes buffers that ranks have filled, or reads ahead into buffers that
// they will empty:
//
//     writing   open rounds r .. r+k-1 ─► wait until round r is filled ─► write it ─► open round r+k
//     reading   read round r into its buffer (waiting until round r-k has been emptied) ─► open it
//
// It makes no calls of the transport, so that an MPI initialised for one thread is enough. After a failure it goes on taking
// rounds and drops them, so that no rank waits for it for ever; the outcome tells all ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/decision/domains.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {

class Step;

/// A thread that runs tasks beside the caller, one after the other. It starts with the first task, and its destruction waits
/// for the last.
class TaskThread {
 public:
  TaskThread() = default;
  ~TaskThread();

  /// `task` must not throw.
  void post(std::function<void()> task);
  /// Returns when nothing is left to do.
  void drain();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

/// One operation for one domain.
struct Job {
  bool write = false;
  std::uint64_t first_round = 0;  ///< numbered through all operations
  std::uint64_t base = 0;
  std::uint64_t step = 0;  ///< of writing, numbered through those of the file
  Sink *sink = nullptr;
  std::function<void(const Failure &failure, double seconds, std::uint64_t bytes)> done;  ///< called by the thread
};

class Aggregator {
 public:
  Aggregator(Node &node, DomainWork work, int rank);
  void post(Job job);

  const DomainWork &work() const { return work_; }
  /// While no job is under way.
  DomainWork &work() { return work_; }

 private:
  void run(const Job &job);
  void write_rounds(const Job &job);
  void read_rounds(const Job &job);
  void open(std::uint64_t first_round, std::size_t round);
  void wait_for_parts(std::uint64_t number);
  void move(const Job &job, std::size_t round);
  template <typename Act>
  void use_sink(const Job &job, Act &&act);

  Node &node_;
  DomainWork work_;
  const int rank_;

  // Of the current operation.
  Failure failure_;
  double seconds_ = 0;
  std::uint64_t bytes_ = 0;

  bool broken_ = false;  // the ranks of this node have given up: no more jobs
  TaskThread thread_;    // the last member: its tasks use those above
};

// --- the engine ----------------------------------------------------------------------------------------------------

/// This rank's bytes in one domain.
struct Contribution {
  std::size_t domain = 0;
  int aggregator = 0;
  bool local = false;  ///< the aggregator is on this node
  const Relay *relay = nullptr;
  Rounds rounds;
  std::vector<std::uint32_t> mine;     ///< rounds with bytes of this rank
  std::vector<std::uint64_t> bytes;    ///< in each of those
  std::vector<std::uint64_t> offsets;  ///< with a relay: of these bytes in the slot of each of those rounds

  bool sent_by_rank() const { return !local && relay == nullptr; }
};

/// What this rank sends and receives as a relay, of one domain.
struct RelayWork {
  struct RoundMessage {
    std::uint32_t round = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint32_t> parts;  ///< ranks of this node, by index there, with bytes in it
  };
  const Relay *relay = nullptr;
  int aggregator = 0;
  std::uint64_t rounds = 0;  ///< of the domain
  std::vector<RoundMessage> messages;
};

class Engine {
 public:
  Engine(outcrop_transport &transport, Pattern own) : link(transport), pattern(std::move(own)) {}

  /// Queues the operation and starts it. Waits for the oldest when four are under way.
  void begin(const std::shared_ptr<Step> &step, bool beside);
  /// Advances all steps that are in progress, oldest first. Throws CommunicationError.
  void advance();
  /// Whether another rank may wait for messages that only calls of this rank move.
  bool sends() const;
  /// Waits for all that is under way; outcomes stay with their steps.
  void settle_all();
  /// Ends everything at this rank for good. Callers may take back their memory after it.
  void break_off(const std::string &reason);
  /// Whether there are several nodes, so that messages are sent.
  bool has_messages() const { return node->leaders().size() > 1; }

  const Link link;
  const Pattern pattern;
  PlanSummary summary;
  bool reading_only = false;
  std::unique_ptr<Node> node;
  std::vector<Contribution> contributions;
  std::vector<RelayWork> relays;                         ///< of this rank
  std::vector<std::unique_ptr<Aggregator>> aggregators;  ///< of this rank
  std::uint32_t writers = 0;                             ///< domains with an aggregator on this node
  bool flushes = false;                                  ///< this rank does for its node
  TaskThread copier;                                     ///< does this rank's copying while the rank computes
  std::deque<std::shared_ptr<Step>> under_way;
  std::uint64_t operations = 0;    ///< begun so far
  std::uint64_t rounds_begun = 0;  ///< data operations begun so far: each takes all rounds of each domain
};

}  // namespace outcrop::aggregate
