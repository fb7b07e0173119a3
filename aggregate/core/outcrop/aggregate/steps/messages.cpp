#include "outcrop/aggregate/steps/step.hpp"

#include <cstring>

#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {

// --- copying -------------------------------------------------------------------------------------------------------

namespace {

// Ranges are copied in pieces of `piece_bytes` bytes. Within a piece, one variable is copied after the other. Therefore
// a piece stays in the processor's cache until all its variables are copied. In an array of structures, for example,
// the variables interleave in the file. The sender and the receiver must use the same size of pieces, because the
// pieces determine the order of the bytes in a message.
constexpr std::uint64_t piece_bytes = std::uint64_t{256} << 10;

// Blocks of equal length. Each block begins `stride` bytes after the previous block.
struct Blocks {
  std::byte *begin;
  std::uint64_t stride;
};

template <std::size_t block>
void copy_small(const Blocks &target, const Blocks &source, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i)
    std::memcpy(target.begin + i * target.stride, source.begin + i * source.stride, block);
}

void copy_blocks(const Blocks &target, const Blocks &source, const Batch &batch) {
  switch (batch.block) {  // a copy of constant length needs only one instruction
    case 1:
      return copy_small<1>(target, source, batch.count);
    case 2:
      return copy_small<2>(target, source, batch.count);
    case 4:
      return copy_small<4>(target, source, batch.count);
    case 8:
      return copy_small<8>(target, source, batch.count);
    case 16:
      return copy_small<16>(target, source, batch.count);
    default:
      for (std::uint64_t i = 0; i < batch.count; ++i)
        std::memcpy(target.begin + i * target.stride, source.begin + i * source.stride, batch.block);
  }
}

template <typename Copy>
void by_pieces(const Pattern &pattern, const Range &range, Copy &&copy) {
  for (Range piece{range.begin, 0}; piece.begin < range.end; piece.begin = piece.end) {
    piece.end = range.end - piece.begin > piece_bytes ? piece.begin + piece_bytes : range.end;
    pattern.visit_extents(piece, [&](const DeclaredExtent &declared) {
      visit_batches(declared.extent, piece, [&](const Batch &batch) { copy(declared, batch); });
    });
  }
}

// Calls copy() for each batch, with the position of the batch in the message. Returns the length of the message.
template <typename Copy>
std::uint64_t in_order(const Pattern &pattern, const Range &range, Copy &&copy) {
  std::uint64_t position = 0;
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy(declared, batch, position);
    position += batch.count * batch.block;
  });
  return position;
}

// Copies bytes between a message and the buffer of an aggregator. In a write, the bytes move from the message to the
// buffer. In a read, the bytes move from the buffer to the message. Returns the number of copied bytes.
std::uint64_t copy_remote(bool write, const Pattern &pattern, const Range &range, std::byte *message,
                          std::byte *buffer) {
  return in_order(pattern, range, [&](const DeclaredExtent &, const Batch &batch, std::uint64_t position) {
    const Blocks sent{message + position, batch.block}, kept{buffer + (batch.file - range.begin), batch.file_stride};
    copy_blocks(write ? kept : sent, write ? sent : kept, batch);
  });
}

}  // namespace

void copy_local(bool write, const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                std::byte *buffer) {
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    const Blocks own{memory[declared.variable] + batch.memory, batch.memory_stride},
        kept{buffer + (batch.file - range.begin), batch.file_stride};
    copy_blocks(write ? kept : own, write ? own : kept, batch);
  });
}

std::uint64_t copy_packed(bool write, const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                          std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch, std::uint64_t position) {
    const Blocks own{memory[declared.variable] + batch.memory, batch.memory_stride},
        sent{message + position, batch.block};
    copy_blocks(write ? sent : own, write ? own : sent, batch);
  });
}

// --- messages ------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t flights_of_rank = 2, flights_of_aggregator = 8;

int tag_of(std::size_t domain) { return static_cast<int>(domain % 16384); }

}  // namespace

Messages::Messages(Engine &engine, Outcome &outcome, bool write, std::uint64_t base, std::uint64_t operation_of_data,
                   std::span<std::byte *const> memory)
    : engine_(engine),
      outcome_(outcome),
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
  const auto copy = [this, &contribution](std::size_t item, Flight &flight) {
    std::byte *position = flight.data.data();
    if (!memory_.empty())
      for (const BufferedRange &range : contribution.rounds.of(contribution.mine[item]))
        position += copy_packed(write_, engine_.pattern, range.file, memory_, position);
  };
  flow.begin = [this, &contribution, tag, copy](std::size_t item, Flight &flight) {
    flight.data.resize(contribution.bytes[item] + mark_bytes());
    if (!write_) return engine_.link.receive(flight.data, contribution.aggregator, tag);
    copy(item, flight);
    flight.data.back() = std::byte{outcome_.is_incomplete()};
    return engine_.link.send(flight.data, contribution.aggregator, tag);
  };
  flow.end = [this, copy](std::size_t item, Flight &flight) {
    if (!write_) copy(item, flight);
  };
}

std::span<std::byte> Messages::RelaySlots::bytes(std::size_t item) const {
  return {node.buffer(work.relay->domain, number(item)), work.messages[item].bytes + mark_bytes};
}

// Returns true if the slot is free: no message uses the slot, and no rank copies to or from the slot.
bool Messages::RelaySlots::free(std::size_t item) const {
  return user[slot(item)] == 0 && node.pending(work.relay->domain, number(item)).load() == 0;
}

void Messages::RelaySlots::open(std::size_t item) const {
  const std::vector<std::uint32_t> &parts = work.messages[item].parts;
  node.open_round(work.relay->domain, number(item), static_cast<std::uint32_t>(parts.size()), parts);
}

// Adds the messages that this rank sends or receives as a relay. In a write, the relay opens a round when the slot of
// the round is free. The relay sends the message of a round when all ranks have copied their bytes to the slot of the
// round. In a read, the relay opens the rounds in ascending order. It opens each round when the message of the round
// has arrived.
void Messages::add_relay(const RelayWork &work) {
  Flow &flow = flows_.emplace_back();
  flow.items = work.messages.size();
  flow.flights.resize(engine_.node->buffers());
  const int tag = tag_of(work.relay->domain);
  const auto slots =
      std::make_shared<RelaySlots>(RelaySlots{work, *engine_.node, operation_ * work.rounds, mark_bytes()});
  if (write_) {
    flow.ready = [slots](std::size_t item) {
      for (; slots->next_open < slots->work.messages.size() && slots->free(slots->next_open); ++slots->next_open) {
        slots->user[slots->slot(slots->next_open)] = slots->next_open + 1;
        slots->open(slots->next_open);
      }
      return item < slots->next_open && slots->node.pending(slots->work.relay->domain, slots->number(item)).load() == 0;
    };
    flow.begin = [this, slots, tag](std::size_t item, Flight &) {
      slots->bytes(item).back() = std::byte{outcome_.is_incomplete()};
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
  // Copies bytes between the message with the number `item` and the buffer, and then decrements `pending`.
  const auto copy = [this, &work, first](std::size_t item, Flight &flight) {
    const Node &node = *engine_.node;
    const RemotePart &part = work.remote_parts()[item];
    std::byte *const buffer = node.buffer(work.domain(), first + part.round) + shift_;
    std::byte *position = flight.data.data();
    if (write_ && flight.data.back() != std::byte{0}) outcome_.mark_incomplete();
    for (const std::uint32_t sender : work.peer(part.peer).senders)
      for (const BufferedRange &range : work.rounds().of(part.round))
        position += copy_remote(write_, work.sender(sender).pattern, range.file, position, buffer + range.position);
    if (node.pending(work.domain(), first + part.round).fetch_sub(1) == 1)
      node.round_state(work.domain()).event.notify();
  };
  flow.ready = [this, &work, first](std::size_t item) {
    return engine_.node->opened(work.domain(), first + work.remote_parts()[item].round);
  };
  flow.begin = [this, &work, tag, copy](std::size_t item, Flight &flight) {
    const RemotePart &part = work.remote_parts()[item];
    const int peer = work.peer(part.peer).rank;
    flight.data.resize(part.bytes + mark_bytes());
    if (write_) return engine_.link.receive(flight.data, peer, tag);
    copy(item, flight);
    return engine_.link.send(flight.data, peer, tag);
  };
  flow.end = [this, copy](std::size_t item, Flight &flight) {
    if (write_) copy(item, flight);
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
