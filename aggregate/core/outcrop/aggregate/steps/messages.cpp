#include "outcrop/aggregate/steps/step.hpp"

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
    if (contribution.sent_by_rank() && !contribution.mine.empty()) add_contribution(contribution);
  for (const RelayWork &work : engine.relays) add_relay(work);
  for (const std::unique_ptr<Aggregator> &aggregator : engine.aggregators)
    if (!aggregator->work().remote_parts().empty()) add_domain(aggregator->work());
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
      for (const BufferedRange &range : contribution.rounds.of(contribution.mine[item]))
        position += pack(engine_.pattern, range.file, memory_, position);
    return engine_.link.send(flight.data, contribution.aggregator, tag);
  };
  flow.end = [this, &contribution](std::size_t item, Flight &flight) {
    if (write_ || memory_.empty()) return;
    const std::byte *position = flight.data.data();
    for (const BufferedRange &range : contribution.rounds.of(contribution.mine[item]))
      position += unpack(engine_.pattern, range.file, memory_, position);
  };
}

std::span<std::byte> Messages::RelaySlots::bytes(std::size_t item) const {
  return {node.buffer(work.relay->domain, number(item)), work.messages[item].bytes};
}

// Whether no message uses the slot and all ranks have taken what it held before.
bool Messages::RelaySlots::free(std::size_t item) const {
  return user[slot(item)] == 0 && node.pending(work.relay->domain, number(item)).load() == 0;
}

void Messages::RelaySlots::open(std::size_t item) const {
  const std::vector<std::uint32_t> &parts = work.messages[item].parts;
  node.open_round(work.relay->domain, number(item), static_cast<std::uint32_t>(parts.size()), parts);
}

// Writing, a round is opened when its slot is free, and sent when all ranks have filled it. Reading, it is opened when it and
// all rounds before it have arrived.
void Messages::add_relay(const RelayWork &work) {
  Flow &flow = flows_.emplace_back();
  flow.items = work.messages.size();
  flow.flights.resize(engine_.node->buffers());
  const int tag = tag_of(work.relay->domain);
  const auto slots = std::make_shared<RelaySlots>(RelaySlots{work, *engine_.node, operation_ * work.rounds});
  if (write_) {
    flow.ready = [slots](std::size_t item) {
      for (; slots->next_open < slots->work.messages.size() && slots->free(slots->next_open); ++slots->next_open) {
        slots->user[slots->slot(slots->next_open)] = slots->next_open + 1;
        slots->open(slots->next_open);
      }
      return item < slots->next_open && slots->node.pending(slots->work.relay->domain, slots->number(item)).load() == 0;
    };
    flow.begin = [this, slots, tag](std::size_t item, Flight &) {
      return engine_.link.send(slots->bytes(item), slots->work.aggregator, tag);
    };
    flow.end = [slots](std::size_t item, Flight &) { slots->user[slots->slot(item)] = 0; };
    return;
  }
  flow.ready = [slots](std::size_t item) { return slots->free(item); };
  flow.begin = [this, slots, tag](std::size_t item, Flight &) {
    slots->user[slots->slot(item)] = item + 1;
    slots->arrived[slots->slot(item)] = false;
    return engine_.link.receive(slots->bytes(item), slots->work.aggregator, tag);
  };
  flow.end = [slots](std::size_t item, Flight &) {
    slots->arrived[slots->slot(item)] = true;
    std::size_t &next = slots->next_open;
    for (; next < slots->work.messages.size(); ++next) {
      const std::size_t slot = slots->slot(next);
      if (slots->user[slot] != next + 1 || !slots->arrived[slot]) return;
      slots->user[slot] = 0;
      slots->open(next);
    }
  };
}

void Messages::add_domain(const DomainWork &work) {
  Flow &flow = flows_.emplace_back();
  const std::uint64_t first = operation_ * work.rounds().count();
  flow.items = work.remote_parts().size();
  flow.flights.resize(flights_of_aggregator);
  const int tag = tag_of(work.domain());
  const auto buffer = [this, &work, first](std::uint32_t round) {
    return engine_.node->buffer(work.domain(), first + round) + shift_;
  };
  const auto count_down = [this, &work, first](std::uint32_t round) {
    const Node &node = *engine_.node;
    if (node.pending(work.domain(), first + round).fetch_sub(1) == 1) node.round_state(work.domain()).event.notify();
  };
  flow.ready = [this, &work, first](std::size_t item) {
    return engine_.node->opened(work.domain(), first + work.remote_parts()[item].round);
  };
  flow.begin = [this, &work, tag, buffer, count_down](std::size_t item, Flight &flight) {
    const RemotePart &part = work.remote_parts()[item];
    const Peer &other = work.peer(part.peer);
    flight.data.resize(part.bytes);
    if (write_) return engine_.link.receive(flight.data, other.rank, tag);
    std::byte *position = flight.data.data();
    for (const std::uint32_t sender : other.senders)
      for (const BufferedRange &range : work.rounds().of(part.round))
        position += lift(work.sender(sender).pattern, range.file, buffer(part.round) + range.position, position);
    count_down(part.round);
    return engine_.link.send(flight.data, other.rank, tag);
  };
  flow.end = [this, &work, buffer, count_down](std::size_t item, Flight &flight) {
    if (!write_) return;
    const RemotePart &part = work.remote_parts()[item];
    const std::byte *position = flight.data.data();
    for (const std::uint32_t sender : work.peer(part.peer).senders)
      for (const BufferedRange &range : work.rounds().of(part.round))
        position += lay(work.sender(sender).pattern, range.file, position, buffer(part.round) + range.position);
    count_down(part.round);
  };
}

bool Messages::advance(Flow &flow) {
  bool busy = false;
  for (Flight &flight : flow.flights) {
    if (flight.busy && engine_.link.test({&flight.request, 1})) {
      flow.end(flight.item, flight);
      flight.busy = false;
    }
    if (!flight.busy && flow.next < flow.items && flow.ready(flow.next)) {
      flight.item = flow.next++;
      flight.request = flow.begin(flight.item, flight);
      flight.busy = true;
    }
    busy = busy || flight.busy;
  }
  return !busy && flow.next == flow.items;
}

bool Messages::advance() {
  bool over = true;
  for (Flow &flow : flows_) {
    if (!flow.over) flow.over = advance(flow);
    over = over && flow.over;
  }
  return over;
}

}  // namespace outcrop::aggregate
