// The engine has the data of a plan on one rank: the rank's bytes in the domains, the rank's aggregators, and the
// operations under way.
//
// An Aggregator object performs the I/O of one domain in its own thread. In a write, ranks fill the buffers, and the
// aggregator writes the buffers to storage. In a read, the aggregator reads data from storage into the buffers, and
// ranks empty the buffers. With k buffers:
//
//     write     open rounds r .. r+k-1 ─► wait until round r is filled ─► write it ─► open round r+k
//     read      read round r into its buffer (waiting until round r-k has been emptied) ─► open it
//
// The thread of an aggregator never calls the transport. Therefore MPI needs only the thread level MPI_THREAD_FUNNELED.
// After an error of storage, an aggregator still opens all rounds, so that no rank waits forever. However, the
// aggregator ignores the bytes of these rounds. The outcome of the operation reports the error of storage to all ranks.
// In a write, a rank may have no valid data. The aggregator then writes no round with bytes of this rank, and no later
// round.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/sinks/sink.hpp"
#include "outcrop/aggregate/transport/transport.hpp"

namespace outcrop::aggregate {

class Step;

/// A thread that runs tasks one after the other. The first call of post() starts the thread of the object. The
/// destructor waits until all tasks have ended.
class TaskThread {
 public:
  TaskThread() = default;
  ~TaskThread();

  /// Adds a task. A task must not throw an exception.
  void post(std::function<void()> task);
  /// Returns when all tasks have ended.
  void drain();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

// --- the work of an aggregator -------------------------------------------------------------------------------------

/// A rank on another node that exchanges one message with the aggregator in each round. A peer may be a relay for
/// several ranks.
struct Peer {
  int rank = 0;
  /// the ranks whose bytes are in the message, in the order of the bytes; each rank is given as an index for sender()
  std::vector<std::uint32_t> senders;
};

/// A message between the aggregator and a peer in one round. `peer` is an index for DomainWork::peer().
struct RemotePart {
  std::uint32_t round = 0, peer = 0;
  std::uint64_t bytes = 0;
};

/// The aggregator's data about its domain: the ranks with bytes in each round, and the places of these bytes in the
/// file.
class DomainWork {
 public:
  DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node);

  std::size_t domain() const { return domain_; }
  const Rounds &rounds() const { return rounds_; }
  const Sender &sender(std::uint32_t index) const { return senders_[index]; }
  const Peer &peer(std::uint32_t index) const { return peers_[index]; }
  /// Returns the messages to or from all peers in all rounds, sorted by round.
  std::span<const RemotePart> remote_parts() const { return remote_parts_; }
  /// Returns the ranks on this node that have bytes in the round. The ranks are indices into Node::ranks().
  std::span<const std::uint32_t> local_parts(std::size_t round) const {
    return std::span(local_parts_).subspan(local_begins_[round], local_begins_[round + 1] - local_begins_[round]);
  }
  /// Returns the initial value of `pending` for the round (node.hpp). This value is the number of ranks of this node
  /// with bytes in the round, plus the number of messages to or from other nodes.
  std::uint32_t parts(std::size_t round) const { return parts_[round]; }
  bool has_remote(std::size_t round) const { return parts_[round] > local_parts(round).size(); }

  /// Returns the ranges of a round without holes. No rank has bytes in a hole. The returned span is valid until the
  /// next call of runs().
  std::span<const BufferedRange> runs(std::size_t round);

  /// Returns the totals of the contiguous runs in all rounds. The time of this call is proportional to the number of
  /// contiguous runs.
  RunTotals totals();

 private:
  void find_peers(const Node &node);
  void find_runs(std::size_t round);

  std::size_t domain_;
  Rounds rounds_;
  std::vector<Sender> senders_;
  std::vector<Peer> peers_;  // all peers are on other nodes
  std::vector<RemotePart> remote_parts_;
  std::vector<std::uint32_t> local_parts_, parts_;
  std::vector<std::size_t> local_begins_;
  std::vector<bool> dense_;
  std::vector<BufferedRange> runs_;
  // The round whose contiguous runs are in `runs_`.
  std::size_t runs_round_ = ~std::size_t{0};
};

// --- aggregators ---------------------------------------------------------------------------------------------------

/// The result of a job: the first failure, and the time and the bytes of the job's transfers to or from storage.
struct JobResult {
  Failure failure;
  double seconds = 0;
  std::uint64_t bytes = 0;
};

/// The work of an aggregator in one operation.
struct Job {
  bool write = false;
  std::uint64_t first_round = 0;  ///< the number of the first round, counted over all operations
  std::uint64_t base = 0;
  std::uint64_t step = 0;  ///< the number of steps that were written to the file before this operation
  Sink *sink = nullptr;
  const Outcome *outcome = nullptr;  ///< knows whether a rank has no valid data
  /// The aggregator's thread calls `done` when the job has ended.
  std::function<void(const JobResult &result)> done;
};

class Aggregator {
 public:
  Aggregator(Node &node, DomainWork work, int rank);
  void post(Job job);

  /// Returns the work of this aggregator. While a job is under way, the caller may call only const functions of the
  /// returned object.
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

  JobResult result_;     // the result of the current job
  bool drops_ = false;   // true if a rank has no valid data for the current write; the step is then dropped
  bool broken_ = false;  // true if this node has given up; later jobs are then dropped
  TaskThread thread_;    // must be the last member, because its tasks use the other members
};

// --- the engine ----------------------------------------------------------------------------------------------------

/// The bytes of this rank in one domain of the plan.
struct Contribution {
  std::size_t domain = 0;
  int aggregator = 0;
  bool local = false;  ///< true if the aggregator is on this node
  const Relay *relay = nullptr;
  Rounds rounds;
  std::vector<std::uint32_t> mine;   ///< the numbers of the rounds in which this rank has bytes
  std::vector<std::uint64_t> bytes;  ///< the number of this rank's bytes in each round of `mine`
  /// Element i is the offset at which this rank's bytes begin in the relay's message, for round `mine[i]`. The list is
  /// empty if this rank uses no relay.
  std::vector<std::uint64_t> offsets;

  bool sent_by_rank() const { return !local && relay == nullptr; }
};

/// The messages of one domain that this rank sends or receives as a relay.
struct RelayWork {
  struct RoundMessage {
    std::uint32_t round = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint32_t> parts;  ///< the ranks whose bytes are in the message, as indices in Node::ranks()
  };
  const Relay *relay = nullptr;
  int aggregator = 0;
  std::uint64_t rounds = 0;  ///< the number of rounds of the domain
  std::vector<RoundMessage> messages;
};

class Engine {
 public:
  Engine(outcrop_transport &transport, Pattern own) : link(transport), pattern(std::move(own)) {}

  /// Starts an operation. If too many operations are under way, the function first waits until the oldest operation has
  /// ended. `beside` has the same meaning as in Step::start().
  void begin(const std::shared_ptr<Step> &step, bool beside);
  /// Continues the messages of the steps under way, in the order in which the steps began. Does not wait. Throws
  /// CommunicationError.
  void advance();
  /// Returns true if a step has messages that have not ended. Only advance() continues these messages.
  bool sends() const;
  /// Waits until the oldest step under way has ended. If the oldest step fails, the function throws no error, because
  /// the step keeps its error.
  void settle_oldest();
  /// Waits until all steps under way have ended. If steps fail, the function throws no error, because each step keeps
  /// its error.
  void settle_all();
  /// Ends all operations at this rank after a failure. After break_off(), the rank cannot begin new operations. After
  /// break_off(), callers can free the memory that they have passed to operations.
  void break_off(const std::string &reason);
  /// Returns true if the ranks are on several nodes.
  bool has_messages() const { return node->leaders().size() > 1; }

  const Link link;
  const Pattern pattern;
  PlanSummary summary;
  bool reading_only = false;
  std::unique_ptr<Node> node;
  std::vector<Contribution> contributions;
  std::vector<RelayWork> relays;                         ///< the messages that this rank exchanges as a relay
  std::vector<std::unique_ptr<Aggregator>> aggregators;  ///< the aggregators at this rank
  std::uint32_t writers = 0;                             ///< the number of domains whose aggregator is on this node
  bool flushes = false;  ///< true if this rank flushes the file for all ranks of its node
  /// The copy thread. It copies this rank's bytes while the rank computes.
  TaskThread copier;
  std::deque<std::shared_ptr<Step>> under_way;
  std::uint64_t operations = 0;       ///< the number of operations that have begun
  std::uint64_t data_operations = 0;  ///< the number of operations that move data; only these operations use rounds
};

}  // namespace outcrop::aggregate
