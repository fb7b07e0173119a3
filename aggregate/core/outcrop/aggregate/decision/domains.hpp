// The functions of this header divide the user's file into regions, domains and rounds. Regions belong to a rank, a
// domain belongs to an aggregator, and rounds belong to a domain.
//
// A region is a part of the file that one rank accesses. A region may contain small gaps, which the rank does not
// access. The regions of all ranks together are cut into domains. The domains have about equal numbers of bytes. Each
// domain is cut into rounds. A round fits into one buffer:
//
//     ranges of the domain   [──────────────]        [────]      [──────────────────────]
//     rounds                 [   0   ][  1  .........  1  ][    2 ....  2  ][     3     ]
//
// A range begins at the same offset within a page in the buffer and in the file. So whole pages can be transferred
// without the page cache. A round ends at a page boundary of the file, so no page belongs to two rounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/node.hpp"

namespace outcrop::aggregate {

struct Region {
  Range range;
  std::uint64_t bytes = 0;  ///< the number of bytes that the rank accesses in the range
};

/// Returns the regions of a pattern, sorted by their offsets. Between two regions there is a gap of at least
/// `gap_bytes` bytes. If the pattern has more than `max_regions` such regions, this function joins regions at the
/// shortest gaps until at most `max_regions` regions are left.
std::vector<Region> regions_of(const Pattern &pattern, std::uint64_t gap_bytes, std::size_t max_regions);

/// Returns at most `count` domains that together cover all regions. A domain is a list of ranges, which are cut at
/// multiples of `alignment`.
std::vector<std::vector<Range>> cut_domains(std::span<const Region> regions, std::size_t count,
                                            std::uint64_t alignment);

// --- rounds --------------------------------------------------------------------------------------------------------

/// A range of the file and its position in the buffer.
struct BufferedRange {
  Range file;
  std::uint64_t position = 0;
};

struct Rounds {
  std::vector<BufferedRange> ranges;
  std::vector<std::uint32_t> ends;  ///< for each round, the index in `ranges` of the first range after the round

  std::size_t count() const { return ends.size(); }
  std::span<const BufferedRange> of(std::size_t round) const {
    const std::uint32_t first = round == 0 ? 0 : ends[round - 1];
    return {ranges.data() + first, ends[round] - first};
  }
};

/// Cuts the ranges of a domain into rounds. The ranges must be sorted, and `buffer_bytes` must be a multiple of the
/// page size.
Rounds cut_rounds(std::span<const Range> ranges, std::uint64_t buffer_bytes);

/// Returns the number of bytes that a pattern has in a round.
std::uint64_t bytes_in(const Pattern &pattern, std::span<const BufferedRange> round);

// --- the work of an aggregator -------------------------------------------------------------------------------------

/// A rank on another node that exchanges one message with the aggregator in each round. The rank may be a relay of
/// several ranks.
struct Peer {
  int rank = 0;
  /// the ranks whose bytes are in the message, as indices for DomainWork::sender(), in the order of their bytes
  std::vector<std::uint32_t> senders;
};

/// A message of one round between the aggregator and a peer. `peer` is an index for DomainWork::peer().
struct RemotePart {
  std::uint32_t round = 0, peer = 0;
  std::uint64_t bytes = 0;
};

/// The number and the total size of the contiguous runs of bytes that a step has in a domain.
struct RunTotals {
  std::uint64_t bytes = 0;
  std::size_t long_runs = 0;  ///< the number of runs that are at least one page long
};

/// The data that an aggregator has about its domain: which ranks have bytes in each round, and where these bytes are in
/// the file.
class DomainWork {
 public:
  DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node);

  std::size_t domain() const { return domain_; }
  const Rounds &rounds() const { return rounds_; }
  const Sender &sender(std::uint32_t index) const { return senders_[index]; }
  const Peer &peer(std::uint32_t index) const { return peers_[index]; }
  /// Returns the messages of all rounds, sorted by round.
  std::span<const RemotePart> remote_parts() const { return remote_parts_; }
  /// Returns the ranks on this node that have bytes in the round, as indices in Node::ranks().
  std::span<const std::uint32_t> local_parts(std::size_t round) const {
    return std::span(local_parts_).subspan(local_begins_[round], local_begins_[round + 1] - local_begins_[round]);
  }
  /// Returns the number of parts of the round. Each rank of this node with bytes in the round has one part, and each
  /// message between nodes is one part. This number is the initial value of `pending` (node.hpp).
  std::uint32_t parts(std::size_t round) const { return parts_[round]; }
  bool has_remote(std::size_t round) const { return parts_[round] > local_parts(round).size(); }

  /// Returns the ranges of a round in which ranks have bytes. Leaves out holes, which are ranges in which no rank has
  /// bytes. The returned span is valid until the next call.
  std::span<const BufferedRange> runs(std::size_t round);

  /// Returns the sums over the contiguous runs of all rounds. The running time of this function is proportional to the
  /// number of these runs.
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
  // The round whose runs are in `runs_`. The runs are computed again only if another round is needed.
  std::size_t runs_round_ = ~std::size_t{0};
};

}  // namespace outcrop::aggregate
