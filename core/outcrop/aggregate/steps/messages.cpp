#include "outcrop/aggregate/steps/messages.hpp"

#include <memory>

#include "outcrop/aggregate/steps/pack.hpp"
#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t flights_of_rank = 2, flights_of_aggregator = 8;

int tag_of(std::size_t domain) { return static_cast<int>(domain % 16384); }

}  // namespace

Messages::Messages(Engine &engine, bool write, std::uint64_t base, std::uint64_t operation_of_data,
                   std::span<std::byte *const> memory)
    : engine_(engine),
      write_(write),
      shift_(base % AlignedMemory::page_bytes),
      operation_(operation_of_data),
      memory_(memory) {
  for (const Contribution &contribution : engine.contributions)
    if (contribution.is_sent() && !contribution.mine.empty()) add_contribution(contribution);
  for (const RelayWork &work : engine.relays) add_relay(work);
  for (const std::unique_ptr<Aggregator> &aggregator : engine.aggregators)
    if (!aggregator->work().remote_parts().empty()) add_domain(*aggregator);
}

void Messages::add_contribution(const Contribution &contribution) {
  Flow &flow = flows_.emplace_back();
  flow.items = contribution.mine.size();
  flow.flights.resize(flights_of_rank);
  flow.ready = [](std::size_t) { return true; };
  const int tag = tag_of(contribution.domain);
  flow.begin = [this, &contribution, tag](std::size_t item, Flight &flight) {
    flight.data.resize(contribution.bytes[item]);
    if (!write_) return engine_.link.receive(flight.data, contribution.aggregator, tag);
    std::byte *position = flight.data.data();
    if (!memory_.empty())
      for (const Piece &piece : contribution.rounds.of(contribution.mine[item]))
        position += pack(engine_.pattern, piece.file, memory_, position);
    return engine_.link.send(flight.data, contribution.aggregator, tag);
  };
  flow.end = [this, &contribution](std::size_t item, Flight &flight) {
    if (write_ || memory_.empty()) return;
    const std::byte *position = flight.data.data();
    for (const Piece &piece : contribution.rounds.of(contribution.mine[item]))
      position += unpack(engine_.pattern, piece.file, memory_, position);
  };
}

std::span<std::byte> Messages::RelayTurns::bytes(std::size_t item) const {
  return {node.buffer(work.relay->domain, number(item)), work.messages[item].bytes};
}

// Neither does a message use it, nor has a rank still to take what came before.
bool Messages::RelayTurns::is_free(std::size_t item) const {
  return user[slot(item)] == 0 && node.lane(work.relay->domain).pending[slot(item)].load() == 0;
}

void Messages::RelayTurns::open(std::size_t item) const {
  Lane &lane = node.lane(work.relay->domain);
  const RelayWork::Message &message = work.messages[item];
  lane.pending[slot(item)].store(static_cast<std::uint32_t>(message.parts.size()));
  lane.opened.store(number(item) + 1);
  for (const std::uint32_t local : message.parts) node.bell(local).ring();
}

// Writing, a round is opened when its slot is free, and sent when all have filled it. Reading, it is opened when it has
// come, and those before it.
void Messages::add_relay(const RelayWork &work) {
  Flow &flow = flows_.emplace_back();
  flow.items = work.messages.size();
  flow.flights.resize(engine_.node->buffers());
  const int tag = tag_of(work.relay->domain);
  const auto turns = std::make_shared<RelayTurns>(RelayTurns{work, *engine_.node, operation_ * work.rounds});
  if (write_) {
    flow.ready = [turns](std::size_t item) {
      for (; turns->next_open < turns->work.messages.size() && turns->is_free(turns->next_open); ++turns->next_open) {
        turns->user[turns->slot(turns->next_open)] = turns->next_open + 1;
        turns->open(turns->next_open);
      }
      const Lane &lane = turns->node.lane(turns->work.relay->domain);
      return item < turns->next_open && lane.pending[turns->slot(item)].load() == 0;
    };
    flow.begin = [this, turns, tag](std::size_t item, Flight &) {
      return engine_.link.send(turns->bytes(item), turns->work.aggregator, tag);
    };
    flow.end = [turns](std::size_t item, Flight &) { turns->user[turns->slot(item)] = 0; };
    return;
  }
  flow.ready = [turns](std::size_t item) { return turns->is_free(item); };
  flow.begin = [this, turns, tag](std::size_t item, Flight &) {
    turns->user[turns->slot(item)] = item + 1;
    turns->has_come[turns->slot(item)] = false;
    return engine_.link.receive(turns->bytes(item), turns->work.aggregator, tag);
  };
  flow.end = [turns](std::size_t item, Flight &) {
    turns->has_come[turns->slot(item)] = true;
    std::size_t &next = turns->next_open;
    for (; next < turns->work.messages.size(); ++next) {
      const std::size_t slot = turns->slot(next);
      if (turns->user[slot] != next + 1 || !turns->has_come[slot]) return;
      turns->user[slot] = 0;
      turns->open(next);
    }
  };
}

void Messages::add_domain(Aggregator &aggregator) {
  Flow &flow = flows_.emplace_back();
  const DomainWork &work = aggregator.work();
  const std::uint64_t first = operation_ * work.rounds().count();
  flow.items = work.remote_parts().size();
  flow.flights.resize(flights_of_aggregator);
  const int tag = tag_of(work.domain());
  const auto buffer = [this, &work, first](std::uint32_t round) {
    return engine_.node->buffer(work.domain(), first + round) + shift_;
  };
  const auto count_down = [this, &aggregator, first](std::uint32_t round) {
    Lane &lane = aggregator.lane();
    if (lane.pending[(first + round) % engine_.node->buffers()].fetch_sub(1) == 1) lane.bell.ring();
  };
  flow.ready = [&aggregator, &work, first](std::size_t item) {
    return aggregator.lane().opened.load() > first + work.remote_parts()[item].round;
  };
  flow.begin = [this, &work, tag, buffer, count_down](std::size_t item, Flight &flight) {
    const RemotePart &part = work.remote_parts()[item];
    const Party &other = work.party(part.party);
    flight.data.resize(part.bytes);
    if (write_) return engine_.link.receive(flight.data, other.rank, tag);
    std::byte *position = flight.data.data();
    for (const std::uint32_t sender : other.senders)
      for (const Piece &piece : work.rounds().of(part.round))
        position += lift(work.sender(sender).pattern, piece.file, buffer(part.round) + piece.position, position);
    count_down(part.round);
    return engine_.link.send(flight.data, other.rank, tag);
  };
  flow.end = [this, &work, buffer, count_down](std::size_t item, Flight &flight) {
    if (!write_) return;
    const RemotePart &part = work.remote_parts()[item];
    const std::byte *position = flight.data.data();
    for (const std::uint32_t sender : work.party(part.party).senders)
      for (const Piece &piece : work.rounds().of(part.round))
        position += lay(work.sender(sender).pattern, piece.file, position, buffer(part.round) + piece.position);
    count_down(part.round);
  };
}

bool Messages::advance(Flow &flow) {
  bool busy = false;
  for (Flight &flight : flow.flights) {
    if (flight.busy && engine_.link.test({&flight.request, 1})) {
      flow.end(flight.item, flight);
      flight.busy = false;
      moved_ = true;
    }
    if (!flight.busy && flow.next < flow.items && flow.ready(flow.next)) {
      flight.item = flow.next++;
      flight.request = flow.begin(flight.item, flight);
      flight.busy = true;
      moved_ = true;
    }
    busy = busy || flight.busy;
  }
  return !busy && flow.next == flow.items;
}

bool Messages::advance() {
  moved_ = false;
  bool over = true;
  for (Flow &flow : flows_) {
    if (!flow.over) flow.over = advance(flow);
    over = over && flow.over;
  }
  return over;
}

}  // namespace outcrop::aggregate
