// What the ranks of a node share: segments of memory, how they wait there, and who sends for whom.
//
//     ordinary memory   [end][events of ranks][outcomes][round states][tables of relays]
//     each tier in use  [ buffers of a domain ][ buffers of another one ] ...
//     ordinary memory   [ slots of a relay ][ slots of another one ] ...
//
// Rounds of a domain are numbered through all operations; round s uses buffer s mod k. The aggregator opens rounds one after
// the other (writing: when the buffer is free; reading: when it holds the data). Each rank with a part in a round copies it
// and counts `pending` down. At zero the aggregator goes on (writes the buffer, or reads the next round into it). In between
// no other rank looks at the round:
//
//     aggregator   pending[s mod k] = parts ; opened = s+1 ; notify the ranks with a part      … pending == 0: the buffer is mine
//     rank                                   opened > s: copy ; --pending, the last notifies the aggregator
//
// A domain that ranks of this node reach by a relay has the same state, and the relay opens its rounds.
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
#include "outcrop/aggregate/transport/link.hpp"
#include "outcrop/storage/file.hpp"

namespace outcrop::aggregate {

// --- waiting -------------------------------------------------------------------------------------------------------

/// An event count: waiting for another thread or process asleep, because a rank that spins may take the core from the rank
/// that it waits for.
///
///     waiter: seen = count(); test the condition; if it does not hold: wait(seen)
///     other:  make the condition true; notify()
///
/// A notification between the test and the wait is not lost: the wait then ends at once. It works in memory shared by
/// processes; all bytes zero is its first state.
class alignas(64) EventCount {
 public:
  std::uint32_t count() const { return notifications_.load(); }
  void notify();
  /// Until the next notification, for at most so many microseconds. May return earlier.
  void wait(std::uint32_t seen, std::uint32_t max_microseconds);

 private:
  std::atomic<std::uint32_t> notifications_{0}, waiting_{0};
};

/// Tells whether other processes of this node have ended. A rank that waits for one of them asks now and then.
class ProcessWatch {
 public:
  ProcessWatch() = default;
  /// Process numbers; the calling process's own may be among them.
  explicit ProcessWatch(std::span<const int> processes);

  /// Index of a process that has ended; -1 if there is none.
  int ended() const;

 private:
  struct Process {
    int index = 0, number = 0;
    Descriptor handle;  // none where the system does not give one: then the number is all there is
  };
  std::vector<Process> processes_;
};

// --- relays --------------------------------------------------------------------------------------------------------
// Ranks of a node that have bytes of a domain whose aggregator is on another node put them together in shared memory. One of
// them, the relay, sends them in one message for each round. Reading goes the other way.
//
//     rank 4 ─┐  each packs its bytes behind those of the ranks before
//     rank 5 ─┼─► [ 4 4 | 5 5 5 | 7 ]  a slot of the node ── rank 5, one message ──► the aggregator, on another node
//     rank 7 ─┘
//
// All ranks of the node know the length of each rank's part of a round from a table in the same memory. It is written once,
// when the plan is made.

/// Rank `rank` has that many bytes in that domain.
struct Tally {
  std::uint32_t domain = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;
};

struct Relay {
  std::size_t domain = 0;
  int rank = 0;            ///< that sends and receives: the one with most bytes of the domain, the lowest of equal ones
  std::vector<int> ranks;  ///< of the node with bytes of the domain, ascending
  std::uint64_t bytes = 0;  ///< of all of them
  std::uint32_t rounds = 0;

  std::size_t place_of(int rank_of_node) const;  ///< its index in `ranks`
  std::uint64_t table_words() const { return std::uint64_t{rounds} * ranks.size(); }
};

/// What relays are chosen from; empty if ranks send for themselves.
struct RelayInputs {
  std::span<const Tally> tallies;         ///< sorted by domain, then by rank
  std::span<const std::uint32_t> rounds;  ///< of each domain
};

class Relays {
 public:
  Relays() = default;
  /// The same on all ranks. `nodes`: of each rank; `aggregators`: of each domain.
  Relays(const RelayInputs &inputs, std::span<const int> nodes, std::span<const int> aggregators);

  bool any() const { return !relays_.empty(); }
  /// The relay of that node's ranks for that domain. Null if they send for themselves, or need not send.
  const Relay *find(std::size_t domain, int node) const;
  /// The relays of a node, by domain.
  std::vector<const Relay *> on_node(int node) const;

 private:
  std::map<std::pair<int, std::size_t>, Relay> relays_;  // by node and domain
};

// --- the node ------------------------------------------------------------------------------------------------------

constexpr std::uint32_t max_buffers = 8;

/// What an aggregator and the ranks of its node know about the rounds of its domain.
struct alignas(64) RoundState {
  std::atomic<std::uint64_t> opened{0};
  EventCount event;  // of the aggregator
  std::array<std::atomic<std::uint32_t>, max_buffers> pending{};
};

/// Why the ranks of this node cannot go on, from the first rank that noticed.
struct alignas(64) NodeEnd {
  std::atomic<std::uint32_t> claimed{0}, told{0};
  char reason[248] = {};
};

/// The buffers of all aggregators. Those of one domain lie in the medium of its tier.
struct BufferLayout {
  std::uint64_t slot_bytes = 0;          ///< of one buffer
  std::uint32_t buffers = 0;             ///< of each domain
  std::span<const std::uint32_t> tiers;  ///< of each domain
  std::span<const Medium> media;         ///< of each tier, on this node; empty: ordinary memory for all
  RelayInputs relayed = {};
};

class Node {
 public:
  /// Collective over all ranks. `aggregators`: of each domain. Ranks that cannot share memory become nodes of their own.
  /// Throws InputError, on all ranks, if one has no memory for buffers.
  Node(const Link &link, std::span<const int> aggregators, const BufferLayout &layout);

  const std::vector<int> &ranks() const { return ranks_; }  ///< of this node, ascending
  std::size_t local() const { return local_; }              ///< index of this rank among them
  bool leads() const { return local_ == 0; }
  std::span<const int> nodes() const { return nodes_; }  ///< of each rank: the lowest rank of its node
  /// The lowest rank of every node, ascending.
  const std::vector<int> &leaders() const { return leaders_; }
  /// Index among the ranks of this node, -1 for a rank of another.
  int local_of(int rank) const;

  EventCount &event(std::size_t local) const { return events_[local]; }
  EventCount &event() const { return events_[local_]; }
  OutcomeSlot &outcome(std::uint64_t operation) const { return outcomes_[operation % outcome_slots]; }
  RoundState &round_state(std::size_t domain) const { return round_states_[state_of_domain_[domain]]; }
  /// Opens a round: `parts` will count it down, of which `locals` are ranks of this node (by index there).
  void open_round(std::size_t domain, std::uint64_t number, std::uint32_t parts,
                  std::span<const std::uint32_t> locals) const;
  bool opened(std::size_t domain, std::uint64_t number) const { return round_state(domain).opened.load() > number; }
  /// How many parts of a round have not been counted down.
  std::atomic<std::uint32_t> &pending(std::size_t domain, std::uint64_t number) const {
    return round_state(domain).pending[number % buffers_];
  }
  /// Of a domain that is aggregated here, or the slot of one that is relayed.
  std::byte *buffer(std::size_t domain, std::uint64_t round) const;
  std::uint32_t buffers() const { return buffers_; }
  void notify_all() const;

  const Relays &relays() const { return relays_; }
  /// By which this node's ranks reach the aggregator of a domain; null if each rank sends for itself.
  const Relay *relay(std::size_t domain) const { return relays_.find(domain, ranks_.front()); }
  /// Bytes of each of the relay's ranks in a round; shared by the node, zeros at first.
  std::span<std::uint64_t> relay_table(const Relay &relay, std::uint32_t round) const;
  /// Never gives the shared memory back: a transfer may use it for ever.
  void keep_memory() const;

  static constexpr std::uint32_t check_after_microseconds = 500000;

  /// Waits until the event, or so long. Throws CommunicationError when a process of this node has ended, or after give_up().
  void wait(EventCount &event, std::uint32_t seen, std::uint32_t max_microseconds = check_after_microseconds) const;
  /// Throws as wait() does; looks at the processes only now and then.
  void check_processes() const;
  /// Ends the waiting of all ranks of this node for good. The first reason counts. That of this rank ends in any case.
  void give_up(const std::string &reason);

  const std::vector<std::string> &notes() const { return notes_; }
  /// Where buffers of this node are: a line for each tier.
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
  bool given_up() const { return end_->told.load() != 0 || told_here_.load() != 0; }

  std::vector<int> nodes_, ranks_, leaders_;
  std::size_t local_ = 0;
  std::uint64_t events_at_ = 0, outcomes_at_ = 0, round_states_at_ = 0, tables_at_ = 0;
  std::uint32_t buffers_ = 0;
  Relays relays_;
  std::vector<std::uint64_t> table_of_domain_;  // where that of a relayed one begins, in words
  std::size_t relay_segment_ = 0;               // 0: there is none
  std::vector<std::size_t> state_of_domain_;
  std::vector<BufferLocation> locations_;  // of each round state
  std::vector<SegmentSpec> specs_;         // the first is what is not buffers
  std::vector<std::shared_ptr<Segment>> segments_;
  NodeEnd *end_ = nullptr;
  EventCount *events_ = nullptr;
  OutcomeSlot *outcomes_ = nullptr;
  RoundState *round_states_ = nullptr;
  std::uint64_t *tables_ = nullptr;
  ProcessWatch processes_;
  mutable std::atomic<std::int64_t> looked_{0};  // nanoseconds of the steady clock
  // The first rank to give up may stop before it has said why; then each of the others has its own reason.
  std::atomic<std::uint32_t> claimed_here_{0}, told_here_{0};
  std::string reason_here_;
  std::vector<std::string> notes_;
};

}  // namespace outcrop::aggregate
