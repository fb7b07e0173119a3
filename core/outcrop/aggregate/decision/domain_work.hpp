// What an aggregator knows about its domain: who has bytes in which round, and where.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/decision/overlap.hpp"
#include "outcrop/aggregate/decision/rounds.hpp"
#include "outcrop/aggregate/node/node.hpp"

namespace outcrop::aggregate {

/// Who sends one message for each round: a rank of another node for itself, or for several of its node (relays.hpp).
struct Party {
  int rank = 0;
  std::vector<std::uint32_t> senders;  ///< whose bytes follow one another in the message
};

/// A message of one round: from or to that party.
struct RemotePart {
  std::uint32_t round = 0, party = 0;
  std::uint64_t bytes = 0;
};

/// What a step has in a domain.
struct RunTotals {
  std::uint64_t bytes = 0;
  std::size_t long_runs = 0;  ///< of a page or more
};

class DomainWork {
 public:
  DomainWork(std::size_t domain, Rounds rounds, std::vector<Sender> senders, const Node &node);

  std::size_t domain() const { return domain_; }
  const Rounds &rounds() const { return rounds_; }
  const Sender &sender(std::uint32_t index) const { return senders_[index]; }
  const Party &party(std::uint32_t index) const { return parties_[index]; }
  /// In the order of rounds.
  std::span<const RemotePart> remote_parts() const { return remote_parts_; }
  /// Ranks of this node (by index there) with bytes in the round.
  std::span<const std::uint32_t> local_parts(std::size_t round) const {
    return std::span(local_parts_).subspan(local_begins_[round], local_begins_[round + 1] - local_begins_[round]);
  }
  /// How often `pending` is counted down in the round.
  std::uint32_t parts(std::size_t round) const { return parts_[round]; }
  bool has_remote(std::size_t round) const { return parts_[round] > local_parts(round).size(); }

  /// What exists of the pieces of a round: all, or with holes between. The span is valid until the next call.
  std::span<const Piece> runs(std::size_t round);

  /// Of all rounds; looks at every run.
  RunTotals totals();

 private:
  void find_parties(const Node &node);
  void find_runs(std::size_t round);

  std::size_t domain_;
  Rounds rounds_;
  std::vector<Sender> senders_;
  std::vector<Party> parties_;  // of other nodes
  std::vector<RemotePart> remote_parts_;
  std::vector<std::uint32_t> local_parts_, parts_;
  std::vector<std::size_t> local_begins_;
  std::vector<bool> dense_;
  std::vector<Piece> runs_;
  std::size_t runs_round_ = ~std::size_t{0};  // whose they are: a domain of one round keeps them
};

/// Bytes of a pattern in a round.
std::uint64_t bytes_in(const Pattern &pattern, std::span<const Piece> pieces);

}  // namespace outcrop::aggregate
