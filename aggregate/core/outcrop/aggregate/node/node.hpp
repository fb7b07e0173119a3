// The ranks of a node share segments of memory and wait for each other there. They may also share relays, which send messages
// for several ranks.
//
//     ordinary memory    [end][events of ranks][outcomes][round states][tables of relays]
//     each tier in use   [ buffers of a domain ][ buffers of another domain ] ...
//     ordinary memory    [ slots of a relay ][ slots of another relay ] ...
//
// The rounds of a domain are numbered through all operations, and round s uses buffer s mod k. The aggregator opens one round
// after the other. In a write it opens a round when the buffer is free, in a read when the buffer holds the data. Each rank
// with a part in the round copies that part and decrements `pending`. When `pending` reaches 0, the aggregator continues: it
// writes the buffer, or reads the data of a later round into it. Other ranks do not access the state of that round.
//
//     aggregator   pending[s mod k] = parts ; opened = s+1 ; notify the ranks with a part      … pending == 0: it owns the buffer
//     rank                                   opened > s: copy ; --pending, the last notifies the aggregator
//
// If the ranks of this node reach a domain by a relay, the domain has the same state here, and the relay opens its rounds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/aggregate/node/outcome.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- waiting -------------------------------------------------------------------------------------------------------

/// An event count. A thread or process sleeps until another one notifies it. It must not spin, because it could take the
/// core from the rank that it waits for.
///
///     waiter: seen = count(); test the condition; if it does not hold: wait(seen)
///     other:  make the condition true; notify()
///
/// A notification between the test and the wait is not lost, because wait() then returns at once. It works in memory that
/// processes share. Zeroed memory is a valid initial state.
class alignas(64) EventCount {
 public:
  std::uint32_t count() const { return notifications_.load(); }
  void notify();
  /// Returns after the next notification or after `max_microseconds`. It may return earlier.
  void wait(std::uint32_t seen, std::uint32_t max_microseconds);

 private:
  std::atomic<std::uint32_t> notifications_{0}, waiting_{0};
};

/// Tells whether other processes of this node have ended. A rank that waits for one of them asks from time to time.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// `processes`: process numbers. The number of the calling process is ignored.
  explicit ProcessWatch(std::span<const int> processes);

  /// Returns the index of a process that has ended, or -1 if there is none.
  int ended() const;

 private:
  struct Process {
    int index = 0, number = 0;
    Descriptor handle;  // none if the system does not provide one; then the process is found by its number
  };
  std::vector<Process> processes_;
};

// --- relays --------------------------------------------------------------------------------------------------------
// Ranks of a node that have bytes in a domain whose aggregator is on another node collect these bytes in shared memory. One of
// the ranks, the relay, sends one message for each round. Reading works in the opposite direction.
//
//     rank 4 ─┐  each packs its bytes behind those of the ranks before it
//     rank 5 ─┼─► [ 4 4 | 5 5 5 | 7 ]  a slot of the node ── rank 5, one message ──► the aggregator, on another node
//     rank 7 ─┘
//
// A table in the same memory tells all ranks of the node the length of each rank's part of a round. It is written once, when
// the plan is made.

/// The bytes of one rank in one domain.
struct Tally {
  std::uint32_t domain = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;
};

struct Relay {
  std::size_t domain = 0;
  int rank = 0;             ///< sends and receives: the rank with most bytes in the domain, the lowest of equal ones
  std::vector<int> ranks;   ///< of the node with bytes in the domain, ascending
  std::uint64_t bytes = 0;  ///< of all of them
  std::uint32_t rounds = 0;

  std::size_t place_of(int rank_of_node) const;  ///< its index in `ranks`
  std::uint64_t table_words() const { return std::uint64_t{rounds} * ranks.size(); }
};

/// The data from which relays are chosen. If it is empty, each rank sends its own messages.
struct RelayInputs {
  std::span<const Tally> tallies;         ///< sorted by domain, then by rank
  std::span<const std::uint32_t> rounds;  ///< of each domain
};

/// All relays. All ranks compute the same ones.
class Relays {
 public:
  Relays() = default;
  /// `nodes`: of each rank; `aggregators`: of each domain.
  Relays(const RelayInputs &inputs, std::span<const int> nodes, std::span<const int> aggregators);

  bool any() const { return !relays_.empty(); }
  /// Returns the relay for the ranks of `node` and that domain. Null if each rank sends its own messages, or none.
  const Relay *find(std::size_t domain, int node) const;
  /// Returns the relays of a node, by domain.
  std::vector<const Relay *> on_node(int node) const;

 private:
  std::map<std::pair<int, std::size_t>, Relay> relays_;  // by node and domain
};

// --- the node ------------------------------------------------------------------------------------------------------

constexpr std::uint32_t max_buffers = 8;

/// The state of the rounds of a domain, shared by its aggregator and the ranks of the node.
struct alignas(64) RoundState {
  std::atomic<std::uint64_t> opened{0};
  EventCount event;  // of the aggregator
  std::array<std::atomic<std::uint32_t>, max_buffers> pending{};
};

/// The reason why the ranks of this node cannot continue, written by the first rank that noticed it.
struct alignas(64) NodeEnd {
  std::atomic<std::uint32_t> claimed{0}, is_written{0};
  char reason[248] = {};
};

/// The buffers of all aggregators. The buffers of a domain are in the medium of its tier.
struct BufferLayout {
  std::uint64_t slot_bytes = 0;          ///< of one buffer
  std::uint32_t buffers = 0;             ///< of each domain
  std::span<const std::uint32_t> tiers;  ///< of each domain
  std::span<const Medium> media;         ///< of each tier, on this node; empty: ordinary memory for all
  RelayInputs relayed = {};
};

class Node {
 public:
  /// Collective over all ranks. `aggregators`: of each domain. Ranks that cannot share memory become nodes with one rank.
  /// Throws InputError on all ranks if one rank has no memory for buffers.
  Node(const Link &link, std::span<const int> aggregators, const BufferLayout &layout);

  const std::vector<int> &ranks() const { return ranks_; }  ///< of this node, ascending
  std::size_t local() const { return local_; }              ///< index of this rank among them
  bool leads() const { return local_ == 0; }
  std::span<const int> nodes() const { return nodes_; }  ///< of each rank: the lowest rank of its node
  /// The lowest rank of every node, ascending.
  const std::vector<int> &leaders() const { return leaders_; }
  /// Returns the index of a rank among the ranks of this node, or -1 if the rank is on another node.
  int local_of(int rank) const;

  EventCount &event(std::size_t local) const { return events_[local]; }
  EventCount &event() const { return events_[local_]; }
  OutcomeSlot &outcome(std::uint64_t operation) const { return outcomes_[operation % outcome_slots]; }
  RoundState &round_state(std::size_t domain) const { return round_states_[state_of_domain_[domain]]; }
  /// Opens a round with `parts` parts. `locals`: indices of the ranks of this node that have one of them.
  void open_round(std::size_t domain, std::uint64_t number, std::uint32_t parts,
                  std::span<const std::uint32_t> locals) const;
  bool opened(std::size_t domain, std::uint64_t number) const { return round_state(domain).opened.load() > number; }
  /// The number of parts of a round that are not done.
  std::atomic<std::uint32_t> &pending(std::size_t domain, std::uint64_t number) const {
    return round_state(domain).pending[number % buffers_];
  }
  /// Returns the buffer of a domain that is aggregated on this node, or the slot of a domain that is relayed.
  std::byte *buffer(std::size_t domain, std::uint64_t round) const;
  std::uint32_t buffers() const { return buffers_; }
  void notify_all() const;

  const Relays &relays() const { return relays_; }
  /// Returns the relay from this node to the aggregator of a domain. Null if each rank sends its own messages.
  const Relay *relay(std::size_t domain) const { return relays_.find(domain, ranks_.front()); }
  /// Returns the bytes of each rank of the relay in a round. The node shares this memory, which initially holds zeros.
  std::span<std::uint64_t> relay_table(const Relay &relay, std::uint32_t round) const;
  /// Keeps the shared memory mapped until the process ends, because a transfer may still use it.
  void keep_memory() const;

  static constexpr std::uint32_t check_after_microseconds = 500000;

  /// Waits for the event, at most `max_microseconds`. Throws CommunicationError when a process of this node has ended, and
  /// after give_up().
  void wait(EventCount &event, std::uint32_t seen, std::uint32_t max_microseconds = check_after_microseconds) const;
  /// Throws as wait() does. It checks the processes only every `check_after_microseconds`.
  void check_processes() const;
  /// Makes every wait() on this node throw from now on. The errors contain the reason of the first rank that calls this.
  void give_up(const std::string &reason);

  const std::vector<std::string> &notes() const { return notes_; }
  /// Describes where the buffers of this node are, with a line for each tier.
  std::vector<std::string> places() const;

 private:
  /// One segment that this node needs.
  struct SegmentSpec {
    Medium medium;
    std::uint64_t bytes = 0;
  };
  /// Where the buffers of a domain are.
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
  std::vector<std::uint64_t> table_of_domain_;  // of a relayed domain: where its table begins, in words
  std::size_t relay_segment_ = 0;               // 0: there is none
  std::vector<std::size_t> state_of_domain_;
  std::vector<BufferLocation> locations_;  // of each round state
  std::vector<SegmentSpec> specs_;         // the first segment holds everything except buffers
  std::vector<std::shared_ptr<Segment>> segments_;
  NodeEnd *end_ = nullptr;
  EventCount *events_ = nullptr;
  OutcomeSlot *outcomes_ = nullptr;
  RoundState *round_states_ = nullptr;
  std::uint64_t *tables_ = nullptr;
  ProcessWatch processes_;
  mutable std::atomic<std::int64_t> checked_at_{0};  // nanoseconds of the steady clock
  // The first rank to give up may be killed before it has written its reason. Then each other rank uses its own reason.
  std::atomic<std::uint32_t> claimed_here_{0}, has_reason_here_{0};
  std::string reason_here_;
  std::vector<std::string> notes_;
};

}  // namespace outcrop::aggregate
