// What a rank keeps of a plan, and the operations that are under way with it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "outcrop/aggregate/decision/plan_summary.hpp"
#include "outcrop/aggregate/node/helper.hpp"
#include "outcrop/aggregate/steps/aggregator.hpp"
#include "outcrop/aggregate/transport/link.hpp"

namespace outcrop::aggregate {

class Step;

/// This rank's bytes in one domain.
struct Contribution {
  std::size_t domain = 0;
  int aggregator = 0;
  bool local = false;  ///< the aggregator is on this node
  const Relay *relay = nullptr;
  Rounds rounds;
  std::vector<std::uint32_t> mine;     ///< rounds with bytes of this rank
  std::vector<std::uint64_t> bytes;    ///< in each of those
  std::vector<std::uint64_t> offsets;  ///< of them in the slot of each of those, with a relay

  bool is_sent() const { return !local && relay == nullptr; }  ///< by this rank itself
};

/// What this rank sends and receives for itself and others of its node, of one domain.
struct RelayWork {
  struct Message {
    std::uint32_t round = 0;
    std::uint64_t bytes = 0;
    std::vector<std::uint32_t> parts;  ///< ranks of this node, by index there, with bytes in it
  };
  const Relay *relay = nullptr;
  int aggregator = 0;
  std::uint64_t rounds = 0;  ///< of the domain
  std::vector<Message> messages;
};

class Engine {
 public:
  Engine(outcrop_transport &transport, Pattern own) : link(transport), pattern(std::move(own)) {}

  /// Puts the operation in line and starts it. Waits for the oldest when four are under way.
  void begin(const std::shared_ptr<Step> &step, bool beside);
  /// Moves on whatever is under way, in order. Throws CommunicationError.
  void advance();
  /// Whether somebody waits for messages that only calls of this rank move.
  bool sends() const;
  /// Waits for all that is under way; outcomes stay with their steps.
  void settle_all();
  /// Ends everything at this rank for good; callers may take back their memory after it.
  void break_off(const std::string &reason);
  /// Whether ranks are on several nodes, so that somebody has to send messages.
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
  Helper helper;
  std::deque<std::shared_ptr<Step>> under_way;
  std::uint64_t operations = 0;    ///< begun so far
  std::uint64_t rounds_begun = 0;  ///< data operations begun so far: each takes all rounds of each domain
};

}  // namespace outcrop::aggregate
