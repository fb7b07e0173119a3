// The ranks of a node share segments of memory. Through this shared memory, the ranks exchange data and wait for each
// other. A rank that sends messages for several ranks of its node is called a relay.
//
//     ordinary memory    [end][events of ranks][outcomes][round states][tables of relays]
//     each tier in use   [ buffers of a domain ][ buffers of another domain ] ...
//     ordinary memory    [ slots of a relay ][ slots of another relay ] ...
//
// The rounds of a domain are numbered. The numbers continue from one operation to the next. If a domain has k buffers,
// round s uses buffer s mod k. The aggregator opens the rounds in the order of their numbers. In a write, the
// aggregator opens a round when the buffer is free. In a read, the aggregator opens a round when the buffer holds the
// data of the round. Each rank with bytes in the round copies these bytes, and then decrements `pending`. When
// `pending` reaches 0, the aggregator continues: it writes the buffer, or reads the data of a later round into the
// buffer. Ranks without bytes in a round do not access the state of the round.
//
//     aggregator   pending[s mod k] = parts ; opened = s+1 ; notify the ranks with a part      … pending == 0: it owns the buffer
//     rank                                   opened > s: copy ; --pending, the last notifies the aggregator
//
// If a relay sends the bytes of a node to an aggregator on another node, the relay's node also has `pending` and
// `opened` for the domain. On the relay's node, the relay opens the rounds of the domain. On this node, the ranks use
// the slots of the relay instead of buffers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- waiting --------------------------------------------------------------------------------------------------------

/// An event count. A thread or process sleeps until another thread or process sends a notification with notify(). A
/// sleeping thread leaves its core free. The thread or process that will notify it may need the same core.
///
///     waiter: seen = count(); test the condition; if it does not hold: wait(seen)
///     other:  make the condition true; notify()
///
/// If another thread calls notify() between the test and wait(), then wait() returns immediately. Therefore no
/// notification is lost. Event counts work in memory that processes share. An event count whose memory contains only
/// zeros is valid.
class alignas(64) EventCount {
 public:
  std::uint32_t count() const { return notifications_.load(); }
  void notify();
  /// Returns after the next notification, or after `max_microseconds` without a notification. May also return earlier,
  /// without a notification.
  void wait(std::uint32_t seen, std::uint32_t max_microseconds);

 private:
  std::atomic<std::uint32_t> notifications_{0}, waiting_{0};
};

/// Finds out whether other processes of this node have ended. A waiting rank calls ended() repeatedly.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// Watches the processes with the numbers in `processes`, except for the calling process.
  explicit ProcessWatch(std::span<const int> processes);

  /// Returns the index in `processes` of a process that has ended, or -1 if no process has ended.
  int ended() const;

 private:
  struct Process {
    int index = 0, number = 0;
    Descriptor handle;  // empty if the system has no handles for processes; then `number` is used
  };
  std::vector<Process> processes_;
};

// --- relays ---------------------------------------------------------------------------------------------------------
// Several ranks of a node may have bytes in a domain whose aggregator is on another node. The ranks of one node that
// have bytes in such a domain collect these bytes in shared memory. One of the ranks, the relay, sends the bytes of all
// these ranks to the aggregator, in one message for each round. Reads work in the opposite direction.
//
//     rank 4 ─┐  each packs its bytes behind those of the ranks before it
//     rank 5 ─┼─► [ 4 4 | 5 5 5 | 7 ]  a slot of the node ── rank 5, one message ──► the aggregator, on another node
//     rank 7 ─┘
//
// A table in the shared memory contains the number of bytes of each rank in each round. The ranks write the table only
// once, when the plan is made.

/// The number of bytes of one rank in one domain.
struct Tally {
  std::uint32_t domain = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;
};

struct Relay {
  std::size_t domain = 0;
  /// The rank that sends and receives for all ranks of this relay. The relay is the rank that has the most bytes in the
  /// domain.
  int rank = 0;
  std::vector<int> ranks;   ///< all ranks of the node that have bytes in the domain, in ascending order
  std::uint64_t bytes = 0;  ///< the number of bytes that these ranks have in the domain
  std::uint32_t rounds = 0;

  std::size_t place_of(int rank_of_node) const;  ///< returns the index of the rank in `ranks`
  std::uint64_t table_words() const { return std::uint64_t{rounds} * ranks.size(); }
};

/// The data that determine the choice of relays. If `tallies` is empty, each rank sends its own messages.
struct RelayInputs {
  std::span<const Tally> tallies;         ///< sorted by domain, then by rank
  std::span<const std::uint32_t> rounds;  ///< the number of rounds of each domain
};

/// All relays of a plan. All ranks compute the same relays.
class Relays {
 public:
  Relays() = default;
  /// Element i of `nodes` is the lowest rank on the node of rank i. `aggregators` contains the aggregator of each
  /// domain.
  Relays(const RelayInputs &inputs, std::span<const int> nodes, std::span<const int> aggregators);

  bool any() const { return !relays_.empty(); }
  /// Returns the relay that the ranks of `node` use for the domain, or null if these ranks have no relay.
  const Relay *find(std::size_t domain, int node) const;
  /// Returns the relays of a node, sorted by domain.
  std::vector<const Relay *> on_node(int node) const;

 private:
  std::map<std::pair<int, std::size_t>, Relay> relays_;  // the key is the node and the domain
};

// --- outcomes -------------------------------------------------------------------------------------------------------
// After an operation, all ranks learn its outcome. The leader of a node is the rank with the lowest number on the node.
//
//     each rank                   its parts are done: arrive()      ─┐ a count in the node's shared memory
//     the last rank of the node   sets node_ready                   ─┘
//     the leaders                 send the first failure up a tree of leaders and down again, if there are several nodes
//     each leader                 sets settled, and notifies all ranks of its node
//
// A node has eight slots for outcomes. A rank has at most four operations in progress. When the last rank of a node
// arrives in operation n, all ranks of the node have begun operation n. Every rank has then seen the outcome of
// operation n - 4, so no rank needs the slot of operation n - 4 any more. The last rank that arrives clears the slot of
// operation n - 4 for operation n + 4.

class Node;

/// The first error of an operation, in a form that shared memory and messages can hold.
struct Failure {
  enum Kind : std::int32_t { none, write, read, flush, open, create, input, corruption };

  Kind kind = none;
  std::int32_t rank = 0, error = 0;
  std::uint32_t padding = 0;
  std::uint64_t offset = 0, length = 0;
  char text[400] = {};  ///< for input and corruption errors, the message; for storage errors, the path of the file

  bool happened() const { return kind != none; }
  static Failure of(Kind kind, int rank, const std::string &text);
  static Failure of(Kind kind, int rank, const StorageError &error);
  static Failure of_input(int rank, const std::string &text) { return of(input, rank, text); }

  /// Throws the stored error, as a StorageError, an InputError or a CorruptionError. Does nothing if no error is
  /// stored.
  void raise() const;
};

/// Runs act(). Returns the error that act() throws if the system or the user has caused the error. Does not catch other
/// exceptions, because these exceptions are bugs of Outcrop.
template <typename Act>
Failure attempt(Failure::Kind kind, int rank, Act &&act) {
  try {
    act();
  } catch (const StorageError &error) {
    return Failure::of(kind, rank, error);
  } catch (const InputError &error) {
    return Failure::of_input(rank, error.what());
  } catch (const CorruptionError &error) {
    return Failure::of(Failure::corruption, rank, error.what());
  } catch (const std::bad_alloc &) {
    return Failure::of_input(rank, "there is no memory left");
  } catch (const std::system_error &error) {  // std::filesystem and std::thread throw this error
    return Failure::of_input(rank, error.what());
  }
  return {};
}

constexpr std::uint64_t max_under_way = 4;
constexpr std::uint64_t outcome_slots = 2 * max_under_way;

/// The outcome of one operation, in memory that the ranks of a node share. An outcome whose memory contains only zeros
/// is valid.
struct alignas(64) OutcomeSlot {
  std::atomic<std::uint32_t> arrived{0}, written{0}, claimed{0};
  std::atomic<std::uint32_t> is_incomplete{0};  // 1 if a rank with bytes in buffers of this node has no valid data
  // Each of these two values is the number of an operation plus 1. `node_ready` is set when all ranks of the node have
  // arrived, and `settled` is set when the outcome is known.
  std::atomic<std::uint64_t> node_ready{0}, settled{0};
  Failure failure;
};

/// One rank's view of the outcome of one operation. Any thread may call the functions of this class, except for
/// advance().
class Outcome {
 public:
  Outcome(Node &node, const Link &link, std::uint64_t operation);

  /// Records a failure of this rank. A node keeps only its first failure.
  void record(const Failure &failure);
  /// Records that a rank or a message has no valid data for buffers of this node. The caller must call
  /// mark_incomplete() before it decrements `pending` of a round. Then the aggregators and relays of this node know
  /// that the data of the round are not valid.
  void mark_incomplete();
  bool is_incomplete() const;
  /// Each aggregator of this node calls wrote() when it has written its part. `writers` is the number of these
  /// aggregators. The last call returns true.
  bool wrote(std::uint32_t writers);
  /// Each rank calls arrive() when all its parts are done.
  void arrive();

  bool settled() const;
  /// Returns the outcome of the operation. The returned outcome is valid only after settled() has returned true.
  const Failure &failure() const;

  /// Continues the messages of a leader. Returns true when the leader has no more messages to send or receive. Only the
  /// thread that may use the transport calls advance(). If several operations are under way, advance() must be called
  /// for the earlier operation first.
  bool advance();
  bool sends() const { return phase_ != Phase::over; }

 private:
  enum class Phase { begin, up, down, sent, over };

  void settle();
  void post_receives();
  bool send_up();
  void send_down();

  Node &node_;
  const Link &link_;
  const std::uint64_t operation_;
  Phase phase_ = Phase::begin;
  std::vector<int> children_;  // the leaders directly below this leader in the tree
  int parent_ = -1;
  std::array<Failure, 2> from_children_{};
  Failure final_{};
  std::vector<outcrop_request> requests_;
};

// --- the node -------------------------------------------------------------------------------------------------------

constexpr std::uint32_t max_buffers = 8;

/// The state of all rounds of one domain, in memory that the ranks of the node share.
struct alignas(64) RoundState {
  std::atomic<std::uint64_t> opened{0};
  EventCount event;  // the aggregator of the domain waits for this event
  std::array<std::atomic<std::uint32_t>, max_buffers> pending{};
};

/// The reason why the ranks of this node had to give up. The first rank that gives up writes the reason.
struct alignas(64) NodeEnd {
  std::atomic<std::uint32_t> claimed{0}, is_written{0};
  char reason[248] = {};
};

/// The sizes and places of the buffers of all aggregators. The buffers of a domain are in the medium of this domain's
/// tier.
struct BufferLayout {
  std::uint64_t slot_bytes = 0;          ///< the size of one buffer
  std::uint32_t buffers = 0;             ///< the number of buffers of each domain
  std::span<const std::uint32_t> tiers;  ///< the tier of each domain's buffers
  /// the medium of each tier on this node; if the list is empty, all tiers are ordinary memory
  std::span<const Medium> media;
  RelayInputs relayed = {};
};

class Node {
 public:
  /// All ranks must call this constructor. `aggregators` contains the aggregator of each domain. If the ranks of a node
  /// cannot share memory, each of these ranks becomes a separate node. If one rank has too little memory for buffers,
  /// all ranks throw InputError.
  Node(const Link &link, std::span<const int> aggregators, const BufferLayout &layout);

  const std::vector<int> &ranks() const { return ranks_; }  ///< the ranks of this node, ascending
  std::size_t local() const { return local_; }              ///< the index of this rank in ranks()
  bool leads() const { return local_ == 0; }
  std::span<const int> nodes() const { return nodes_; }  ///< element i is the lowest rank on the node of rank i
  /// Returns the lowest rank of each node, in ascending order.
  const std::vector<int> &leaders() const { return leaders_; }
  /// Returns the index of a rank in ranks(), or -1 if the rank is on another node.
  int local_of(int rank) const;

  EventCount &event(std::size_t local) const { return events_[local]; }
  EventCount &event() const { return events_[local_]; }
  OutcomeSlot &outcome(std::uint64_t operation) const { return outcomes_[operation % outcome_slots]; }
  RoundState &round_state(std::size_t domain) const { return round_states_[state_of_domain_[domain]]; }
  /// Opens a round in which `parts` ranks have bytes, and notifies the ranks with bytes on this node. `locals` has the
  /// indices of the notified ranks in ranks().
  void open_round(std::size_t domain, std::uint64_t number, std::uint32_t parts,
                  std::span<const std::uint32_t> locals) const;
  bool opened(std::size_t domain, std::uint64_t number) const { return round_state(domain).opened.load() > number; }
  /// Returns the counter of a round: the number of ranks that must still copy their bytes of the round.
  std::atomic<std::uint32_t> &pending(std::size_t domain, std::uint64_t number) const {
    return round_state(domain).pending[number % buffers_];
  }
  /// If the aggregator is on this node, returns the domain's buffer for the round. Otherwise returns the relay's slot
  /// for the round.
  std::byte *buffer(std::size_t domain, std::uint64_t round) const;
  std::uint32_t buffers() const { return buffers_; }
  void notify_all() const;

  const Relays &relays() const { return relays_; }
  /// Returns the relay that ranks of this node use for the domain, or null if each rank sends its own messages.
  const Relay *relay(std::size_t domain) const { return relays_.find(domain, ranks_.front()); }
  /// Returns the entries for one round in the table of a relay. Element i is the number of bytes that rank
  /// `relay.ranks[i]` has in the round. The table of a relay is in shared memory. Initially the table contains zeros.
  std::span<std::uint64_t> relay_table(const Relay &relay, std::uint32_t round) const;
  /// Keeps the shared memory mapped until the process ends. The caller must call this function if a transfer may still
  /// use the memory.
  void keep_memory() const;

  static constexpr std::uint32_t check_after_microseconds = 500000;

  /// Waits for a notification of `event`, but not longer than `max_microseconds`. Throws CommunicationError if a
  /// process of this node has ended, or if a rank of this node has called give_up().
  void wait(EventCount &event, std::uint32_t seen, std::uint32_t max_microseconds = check_after_microseconds) const;
  /// Throws the same errors as wait(), but returns without waiting. Tests at most once in `check_after_microseconds`
  /// whether processes have ended.
  void check_processes() const;
  /// After a call of give_up(), each call of wait() on this node throws an error. The error contains the reason that
  /// the first caller of give_up() on this node has given.
  void give_up(const std::string &reason);

  const std::vector<std::string> &notes() const { return notes_; }
  /// Returns one line for each tier. Each line says where the buffers of this node on the tier are.
  std::vector<std::string> places() const;

 private:
  /// The medium and the size of a segment that this node needs.
  struct SegmentSpec {
    Medium medium;
    std::uint64_t bytes = 0;
  };
  /// The place of a domain's buffers: the index of the segment, and the offset in this segment.
  struct BufferLocation {
    std::size_t segment = 0;
    std::uint64_t begin = 0, slot_bytes = 0;
  };

  void share(const Link &link, std::span<const int> aggregators, const BufferLayout &layout);
  void find_ranks(int rank);
  std::string take_segments(const Link &link);
  void lay_out(std::span<const int> aggregators, const BufferLayout &layout);
  void lay_out_relays(const BufferLayout &layout);
  void place();
  bool given_up() const { return end_->is_written.load() != 0 || has_reason_here_.load() != 0; }

  std::vector<int> nodes_, ranks_, leaders_;
  std::size_t local_ = 0;
  std::uint32_t buffers_ = 0;
  Relays relays_;
  // Element i is the index in `tables_` at which the relay's table for domain i begins.
  std::vector<std::uint64_t> table_of_domain_;
  std::size_t relay_segment_ = 0;  // 0 if no relay exists
  std::vector<std::size_t> state_of_domain_;
  std::vector<BufferLocation> locations_;  // element i: the buffers of the domain of round state i
  std::vector<SegmentSpec> specs_;         // the first segment holds everything except buffers and slots
  std::vector<std::shared_ptr<Segment>> segments_;
  NodeEnd *end_ = nullptr;
  EventCount *events_ = nullptr;
  OutcomeSlot *outcomes_ = nullptr;
  RoundState *round_states_ = nullptr;
  std::uint64_t *tables_ = nullptr;
  ProcessWatch processes_;
  mutable std::atomic<std::int64_t> checked_at_{0};  // the time of the last check, in nanoseconds of the steady clock
  // Each rank also keeps its own reason. The first rank that gives up may be killed before it writes its reason to the
  // shared memory.
  std::atomic<std::uint32_t> claimed_here_{0}, has_reason_here_{0};
  std::string reason_here_;
  std::vector<std::string> notes_;
};

}  // namespace outcrop::aggregate
