#include "outcrop/aggregate/steps/step.hpp"

#include <cstring>
#include <memory>

#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {

// --- copying -------------------------------------------------------------------------------------------------------

namespace {

// Ranges are copied in pieces of this size, which fit into a cache. In each piece, the variables are copied one after
// the other. So a piece of the buffer stays in the cache even if the variables interleave, as in an array of
// structures. Sender and receiver must use the same size, because the pieces determine the order of bytes in a message.
constexpr std::uint64_t piece_bytes = std::uint64_t{256} << 10;

template <std::size_t block>
void copy_small(std::byte *target, std::uint64_t target_stride, const std::byte *source, std::uint64_t source_stride,
                std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(target + i * target_stride, source + i * source_stride, block);
}

void copy_rows(std::byte *target, std::uint64_t target_stride, const std::byte *source, std::uint64_t source_stride,
               std::uint64_t count, std::uint64_t block) {
  switch (block) {  // the compiler copies a block of constant length in one instruction
    case 1:
      return copy_small<1>(target, target_stride, source, source_stride, count);
    case 2:
      return copy_small<2>(target, target_stride, source, source_stride, count);
    case 4:
      return copy_small<4>(target, target_stride, source, source_stride, count);
    case 8:
      return copy_small<8>(target, target_stride, source, source_stride, count);
    case 16:
      return copy_small<16>(target, target_stride, source, source_stride, count);
    default:
      for (std::uint64_t i = 0; i < count; ++i)
        std::memcpy(target + i * target_stride, source + i * source_stride, block);
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

// Calls copy() for each batch, with the batch's position in the message. Returns the length of the message.
template <typename Copy>
std::uint64_t in_order(const Pattern &pattern, const Range &range, Copy &&copy) {
  std::uint64_t position = 0;
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy(declared, batch, position);
    position += batch.count * batch.block;
  });
  return position;
}

}  // namespace

void fill(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *buffer) {
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy_rows(buffer + (batch.file - range.begin), batch.file_stride, memory[declared.variable] + batch.memory,
              batch.memory_stride, batch.count, batch.block);
  });
}

void empty(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, const std::byte *buffer) {
  by_pieces(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch) {
    copy_rows(memory[declared.variable] + batch.memory, batch.memory_stride, buffer + (batch.file - range.begin),
              batch.file_stride, batch.count, batch.block);
  });
}

std::uint64_t pack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory, std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch, std::uint64_t position) {
    copy_rows(message + position, batch.block, memory[declared.variable] + batch.memory, batch.memory_stride,
              batch.count, batch.block);
  });
}

std::uint64_t unpack(const Pattern &pattern, const Range &range, std::span<std::byte *const> memory,
                     const std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &declared, const Batch &batch, std::uint64_t position) {
    copy_rows(memory[declared.variable] + batch.memory, batch.memory_stride, message + position, batch.block,
              batch.count, batch.block);
  });
}

std::uint64_t lay(const Pattern &pattern, const Range &range, const std::byte *message, std::byte *buffer) {
  return in_order(pattern, range, [&](const DeclaredExtent &, const Batch &batch, std::uint64_t position) {
    copy_rows(buffer + (batch.file - range.begin), batch.file_stride, message + position, batch.block, batch.count,
              batch.block);
  });
}

std::uint64_t lift(const Pattern &pattern, const Range &range, const std::byte *buffer, std::byte *message) {
  return in_order(pattern, range, [&](const DeclaredExtent &, const Batch &batch, std::uint64_t position) {
    copy_rows(message + position, batch.block, buffer + (batch.file - range.begin), batch.file_stride, batch.count,
              batch.block);
  });
}

// --- messages ------------------------------------------------------------------------------------------------------

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

// Returns true if no message uses the slot, and all ranks have finished copying to or from the slot.
bool Messages::RelaySlots::free(std::size_t item) const {
  return user[slot(item)] == 0 && node.pending(work.relay->domain, number(item)).load() == 0;
}

void Messages::RelaySlots::open(std::size_t item) const {
  const std::vector<std::uint32_t> &parts = work.messages[item].parts;
  node.open_round(work.relay->domain, number(item), static_cast<std::uint32_t>(parts.size()), parts);
}

// Adds the messages that this rank exchanges as a relay. In a write, the relay opens a round when the round's slot is
// free. It sends the round when all ranks have filled the slot. In a read, the relay opens a round when this round and
// all earlier rounds have arrived.
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
