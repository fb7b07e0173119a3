// How the file is shared out: regions that ranks touch, domains of aggregators, and the rounds of a domain.
//
// A rank's regions are what it touches, with small gaps counted as touched. All ranks' regions, with the bytes in each, are
// cut into domains of about equal bytes. A domain is cut into rounds, each of which fits into one buffer:
//
//     ranges of the domain   [──────────────]        [────]      [──────────────────────]
//     rounds                 [   0   ][  1  .........  1  ][    2 ....  2  ][     3     ]
//
// A range lies in the buffer at the same offset within a page as in the file, so that whole pages can go around the page
// cache. Cuts are at pages, too: no page belongs to two rounds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/node.hpp"

namespace outcrop::aggregate {

struct Region {
  Range range;
  std::uint64_t bytes = 0;  ///< of the rank, inside
};

/// Sorted, and apart from each other by at least `gap_bytes`. There are at most `max_regions`, for which larger gaps are
/// given up.
std::vector<Region> regions_of(const Pattern &pattern, std::uint64_t gap_bytes, std::size_t max_regions);

/// Up to `count` lists of ranges, cut at multiples of `alignment`, that hold all regions.
std::vector<std::vector<Range>> cut_domains(std::span<const Region> regions, std::size_t count,
                                            std::uint64_t alignment);

// --- rounds --------------------------------------------------------------------------------------------------------

/// A range of the file, and where it lies in the buffer.
struct BufferedRange {
  Range file;
  std::uint64_t position = 0;
};

struct Rounds {
  std::vector<BufferedRange> ranges;
  std::vector<std::uint32_t> ends;  ///< of each round: its last range + 1

  std::size_t count() const { return ends.size(); }
  std::span<const BufferedRange> of(std::size_t round) const {
    const std::uint32_t first = round == 0 ? 0 : ends[round - 1];
    return {ranges.data() + first, ends[round] - first};
  }
};

/// `buffer_bytes` is a multiple of the page. Ranges are sorted.
Rounds cut_rounds(std::span<const Range> ranges, std::uint64_t buffer_bytes);

/// Bytes of a pattern in a round.
std::uint64_t bytes_in(const Pattern &pattern, std::span<const BufferedRange> round);

// --- the work of an aggregator -------------------------------------------------------------------------------------

/// A rank that exchanges one message with the aggregator for each round: a rank of another node, or a relay of several.
struct Peer {
  int rank = 0;
  std::vector<std::uint32_t> senders;  ///< whose bytes follow one another in the message
};

/// A message of one round: from or to that peer.
struct RemotePart {
  std::uint32_t round = 0, peer = 0;
  std::uint64_t bytes = 0;
};

/// What a step has in a domain.
struct RunTotals {
  std::uint64_t bytes = 0;
  std::size_t long_runs = 0;  ///< of a page or more
};

/// What an aggregator knows about its domain: which ranks have bytes in which round, and where.
class DomainWork {
 public:
  DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node);

  std::size_t domain() const { return domain_; }
  const Rounds &rounds() const { return rounds_; }
  const Sender &sender(std::uint32_t index) const { return senders_[index]; }
  const Peer &peer(std::uint32_t index) const { return peers_[index]; }
  /// In the order of rounds.
  std::span<const RemotePart> remote_parts() const { return remote_parts_; }
  /// Ranks of this node (by index there) with bytes in the round.
  std::span<const std::uint32_t> local_parts(std::size_t round) const {
    return std::span(local_parts_).subspan(local_begins_[round], local_begins_[round + 1] - local_begins_[round]);
  }
  /// How often `pending` is counted down in the round.
  std::uint32_t parts(std::size_t round) const { return parts_[round]; }
  bool has_remote(std::size_t round) const { return parts_[round] > local_parts(round).size(); }

  /// The ranges of a round without the holes that no rank has. The span is valid until the next call.
  std::span<const BufferedRange> runs(std::size_t round);

  /// Of all rounds; looks at every run.
  RunTotals totals();

 private:
  void find_peers(const Node &node);
  void find_runs(std::size_t round);

  std::size_t domain_;
  Rounds rounds_;
  std::vector<Sender> senders_;
  std::vector<Peer> peers_;  // of other nodes
  std::vector<RemotePart> remote_parts_;
  std::vector<std::uint32_t> local_parts_, parts_;
  std::vector<std::size_t> local_begins_;
  std::vector<bool> dense_;
  std::vector<BufferedRange> runs_;
  std::size_t runs_round_ = ~std::size_t{0};  // whose they are: a domain of one round keeps them
};

}  // namespace outcrop::aggregate
