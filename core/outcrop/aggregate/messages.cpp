#include "outcrop/aggregate/messages.hpp"

#include "outcrop/aggregate/pack.hpp"
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
    if (!contribution.local && !contribution.mine.empty()) add_contribution(contribution);
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
    const Sender &other = work.sender(part.sender);
    flight.data.resize(part.bytes);
    if (write_) return engine_.link.receive(flight.data, other.rank, tag);
    std::byte *position = flight.data.data();
    for (const Piece &piece : work.rounds().of(part.round))
      position += lift(other.pattern, piece.file, buffer(part.round) + piece.position, position);
    count_down(part.round);
    return engine_.link.send(flight.data, other.rank, tag);
  };
  flow.end = [this, &work, buffer, count_down](std::size_t item, Flight &flight) {
    if (!write_) return;
    const RemotePart &part = work.remote_parts()[item];
    const std::byte *position = flight.data.data();
    for (const Piece &piece : work.rounds().of(part.round))
      position += lay(work.sender(part.sender).pattern, piece.file, position, buffer(part.round) + piece.position);
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
