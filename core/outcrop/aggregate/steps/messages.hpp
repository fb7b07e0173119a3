// What an operation sends between nodes: for each round of a domain, one message between each rank with bytes in it and the
// aggregator, unless they are on the same node.
//
// Where ranks of a node send as one (relays.hpp), it is one message for all of them, from the slot of their relay.
//
// Writing, ranks pack and send, and the aggregator lays what it receives at its places in the round's buffer, once that is
// open. Reading, it is the other way round. Of each domain a few messages are under way at a time, in the order of rounds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "outcrop/aggregate/steps/engine.hpp"

namespace outcrop::aggregate {

class Messages {
 public:
  /// `memory`: addresses of this rank's variables; empty when they did not fit: then zeros are sent and nothing is kept.
  Messages(Engine &engine, bool write, std::uint64_t base, std::uint64_t operation_of_data,
           std::span<std::byte *const> memory);

  /// Moves on as far as it goes without waiting; true when all is over. Throws CommunicationError.
  bool advance();
  /// Whether the last call has moved anything.
  bool moved() const { return moved_; }
  bool any() const { return !flows_.empty(); }

 private:
  struct Flight {
    std::vector<std::byte> data;
    outcrop_request request = 0;
    std::size_t item = 0;
    bool busy = false;
  };
  // Messages of one domain in one role, in order.
  struct Flow {
    std::size_t items = 0, next = 0;
    std::function<bool(std::size_t item)> ready;  // may it begin?
    std::function<outcrop_request(std::size_t item, Flight &)> begin;
    std::function<void(std::size_t item, Flight &)> end;
    std::vector<Flight> flights;
    bool over = false;
  };

  // The slots of a relay during an operation.
  struct RelayTurns {
    const RelayWork &work;
    const Node &node;
    std::uint64_t first = 0;  // round of the operation
    std::size_t next_open = 0;
    std::array<std::size_t, buffers_most> user{};  // the message that has each slot, + 1
    std::array<bool, buffers_most> has_come{};

    std::uint64_t number(std::size_t item) const { return first + work.messages[item].round; }
    std::size_t slot(std::size_t item) const { return number(item) % node.buffers(); }
    std::span<std::byte> bytes(std::size_t item) const;
    bool is_free(std::size_t item) const;
    void open(std::size_t item) const;
  };

  void add_contribution(const Contribution &contribution);
  void add_relay(const RelayWork &work);
  void add_domain(Aggregator &aggregator);
  bool advance(Flow &flow);

  Engine &engine_;
  const bool write_;
  const std::uint64_t shift_, operation_;
  const std::span<std::byte *const> memory_;
  std::vector<Flow> flows_;
  bool moved_ = false;
};

}  // namespace outcrop::aggregate
