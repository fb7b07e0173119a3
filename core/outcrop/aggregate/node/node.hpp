// What the ranks of a node have in common: segments of shared memory, and how they wait there.
//
//     ordinary memory   [end][bells of ranks][outcomes][lanes][tables of relays]
//     each tier in use  [ buffers of a lane ][ buffers of another one ] ...
//     ordinary memory   [ slots of a relay ][ slots of another one ] ...
//
// A lane is what an aggregator and the ranks of its node know about the rounds of its domain. Rounds are numbered through
// all operations; round s uses buffer s mod k. The aggregator opens rounds one after the other (writing: when the buffer is
// free; reading: when it holds the data), each rank with a part in one copies it and counts `pending` down, and at zero the
// aggregator goes on (writes the buffer; reads the next round into it). Nobody else looks at a round in between:
//
//     aggregator   pending[s mod k] = parts ; opened = s+1 ; ring the ranks with a part        … pending == 0: the buffer is mine
//     rank                                   opened > s: copy ; --pending, the last rings the aggregator
//
// A domain that ranks of this node reach by a relay (relays.hpp) has a lane, too, whose rounds the relay opens.
//
// Outcomes are described in outcome.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "outcrop/aggregate/node/bell.hpp"
#include "outcrop/aggregate/node/failure.hpp"
#include "outcrop/aggregate/node/medium.hpp"
#include "outcrop/aggregate/node/neighbours.hpp"
#include "outcrop/aggregate/node/relays.hpp"
#include "outcrop/aggregate/node/segment.hpp"
#include "outcrop/aggregate/transport/link.hpp"

namespace outcrop::aggregate {

constexpr std::uint32_t buffers_most = 8;

struct alignas(64) Lane {
  std::atomic<std::uint64_t> opened{0};
  Bell bell;  // of the aggregator
  std::array<std::atomic<std::uint32_t>, buffers_most> pending{};
};

/// Why the ranks of this node cannot go on; of the first that found out.
struct alignas(64) NodeEnd {
  std::atomic<std::uint32_t> claimed{0}, told{0};
  char reason[248] = {};
};

/// How one operation ended for the ranks of this node; see outcome.hpp.
struct alignas(64) OutcomeSlot {
  std::atomic<std::uint32_t> arrived{0}, written{0}, claimed{0};
  std::atomic<std::uint64_t> node_ready{0}, settled{0};  // number of the operation + 1
  Failure failure;
};

/// Buffers of all aggregators, of which those of one domain lie in the medium of their tier.
struct BufferLayout {
  std::uint64_t slot_bytes = 0;          ///< of one buffer
  std::uint32_t buffers = 0;             ///< of each domain
  std::span<const std::uint32_t> tiers;  ///< of each domain
  std::span<const Medium> media;         ///< of each tier, on this node; none: ordinary memory for all
  RelayWishes relayed = {};
};

constexpr std::uint64_t under_way_most = 4;
constexpr std::uint64_t outcome_slots = 2 * under_way_most;

class Node {
 public:
  /// Collective over all ranks. `aggregators`: of each domain. Ranks that cannot share memory become nodes of their own.
  /// Throws InputError, on all ranks, where one has no memory for buffers.
  Node(const Link &link, std::span<const int> aggregators, const BufferLayout &layout);

  const std::vector<int> &ranks() const { return ranks_; }  ///< of this node, ascending
  std::size_t local() const { return local_; }              ///< index of this rank among them
  bool leads() const { return local_ == 0; }
  std::span<const int> nodes() const { return nodes_; }  ///< of each rank: the lowest rank of its node
  /// The lowest rank of every node, ascending.
  const std::vector<int> &leaders() const { return leaders_; }
  /// Index among the ranks of this node, -1 for a rank of another.
  int local_of(int rank) const;

  Bell &bell(std::size_t local) const { return bells_[local]; }
  Bell &bell() const { return bells_[local_]; }
  OutcomeSlot &outcome(std::uint64_t operation) const { return outcomes_[operation % outcome_slots]; }
  Lane &lane(std::size_t domain) const { return lanes_[lane_of_domain_[domain]]; }
  /// Of a domain that is aggregated here, or the slot of one that is relayed.
  std::byte *buffer(std::size_t domain, std::uint64_t round) const;
  std::uint32_t buffers() const { return buffers_; }
  void ring_all() const;

  const Relays &relays() const { return relays_; }
  /// By which this node's ranks reach the aggregator of a domain; null where each does for itself.
  const Relay *relay(std::size_t domain) const { return relays_.find(domain, ranks_.front()); }
  /// Bytes of each of the relay's ranks in a round; shared by the node, zeros at first.
  std::span<std::uint64_t> relay_table(const Relay &relay, std::uint32_t round) const;
  /// Nothing of the shared memory is given back any more: something may use it for ever.
  void keep_memory() const;

  static constexpr std::uint32_t look_after_microseconds = 500000;

  /// Sleeps until the bell rings, or so long. Throws CommunicationError when a process of this node has gone, or after
  /// give_up().
  void sleep(Bell &bell, std::uint32_t heard, std::uint32_t microseconds_most = look_after_microseconds) const;
  /// Throws as sleep() does; looks at the processes only now and then.
  void look_after_neighbours() const;
  /// Ends the waiting of all ranks of this node for good, for this reason; the first counts. That of this rank ends in any case.
  void give_up(const std::string &reason);

  const std::vector<std::string> &notes() const { return notes_; }
  /// Where buffers of this node are: a line for each tier.
  std::vector<std::string> places() const;

 private:
  /// One segment that this node needs.
  struct Need {
    Medium medium;
    std::uint64_t bytes = 0;
  };
  /// The buffers of a domain: in which segment, from which byte on, of so many bytes each.
  struct Seat {
    std::size_t segment = 0;
    std::uint64_t begin = 0, slot_bytes = 0;
  };

  void share(const Link &link, std::span<const int> aggregators, const BufferLayout &layout);
  void find_ranks(int rank);
  std::string take_segments(const Link &link);
  void lay_out(std::span<const int> aggregators, const BufferLayout &layout);
  void lay_out_relays(const BufferLayout &layout);
  void place();
  bool has_given_up() const { return end_->told.load() != 0 || told_here_.load() != 0; }

  std::vector<int> nodes_, ranks_, leaders_;
  std::size_t local_ = 0;
  std::uint64_t bells_at_ = 0, outcomes_at_ = 0, lanes_at_ = 0, tables_at_ = 0;
  std::uint32_t buffers_ = 0;
  Relays relays_;
  std::vector<std::uint64_t> table_of_domain_;  // where that of a relayed one begins, in words
  std::size_t relay_segment_ = 0;               // 0: there is none
  std::vector<std::size_t> lane_of_domain_;
  std::vector<Seat> seats_;  // of each lane
  std::vector<Need> needs_;  // the first is what is not buffers
  std::vector<std::shared_ptr<Segment>> segments_;
  NodeEnd *end_ = nullptr;
  Bell *bells_ = nullptr;
  OutcomeSlot *outcomes_ = nullptr;
  Lane *lanes_ = nullptr;
  std::uint64_t *tables_ = nullptr;
  Neighbours neighbours_;
  mutable std::atomic<std::int64_t> looked_{0};  // nanoseconds of the steady clock
  // Who is the first to give up may stop before it has said why; then each of the others has its own reason.
  std::atomic<std::uint32_t> claimed_here_{0}, told_here_{0};
  std::string reason_here_;
  std::vector<std::string> notes_;
};

}  // namespace outcrop::aggregate
