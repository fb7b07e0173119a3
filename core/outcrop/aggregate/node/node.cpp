#include "outcrop/aggregate/node/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "outcrop/aggregate/text/format.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t no_lane = ~std::size_t{0};

}  // namespace

Node::Node(const Link &link, std::span<const int> aggregators, const BufferLayout &layout)
    : nodes_(link.gather(link.node())), buffers_(layout.buffers) {
  share(link, aggregators, layout);
  place();
  leaders_ = nodes_;
  std::ranges::sort(leaders_);
  leaders_.erase(std::ranges::unique(leaders_).begin(), leaders_.end());
}

// Two attempts: by nodes, and if on any node that does not work, each rank there for itself.
void Node::share(const Link &link, std::span<const int> aggregators, const BufferLayout &layout) {
  struct Trouble {
    char text[300];
  };
  for (bool alone = false;; alone = true) {
    find_ranks(link.rank());
    lay_out(aggregators, layout);
    const std::string reason = take_segments(link);
    if (!reason.empty()) notes_.push_back(reason);
    Trouble mine{};
    reason.copy(mine.text, sizeof mine.text - 1);
    const std::vector<Trouble> all = link.gather(mine);
    const auto failed = std::ranges::find_if(all, [](const Trouble &each) { return each.text[0] != 0; });
    if (failed == all.end()) return;
    if (alone) throw InputError("rank " + std::to_string(failed - all.begin()) + ": " + failed->text);
    segments_.clear();
    std::vector<int> nodes = nodes_;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      for (std::size_t other = 0; other < nodes.size(); ++other)
        if (all[other].text[0] != 0 && nodes_[other] == nodes_[rank]) nodes[rank] = static_cast<int>(rank);
    nodes_ = std::move(nodes);
  }
}

void Node::find_ranks(int own) {
  ranks_.clear();
  for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank)
    if (nodes_[static_cast<std::size_t>(rank)] == nodes_[static_cast<std::size_t>(own)]) ranks_.push_back(rank);
  local_ = static_cast<std::size_t>(std::ranges::find(ranks_, own) - ranks_.begin());
}

// Made by the first rank, found by the others. Collective; returns why this rank has none, if so.
std::string Node::take_segments(const Link &link) {
  std::string reason;
  std::vector<Segment::Address> mine;
  try {
    for (std::size_t i = 0; leads() && i < needs_.size(); ++i)
      segments_.push_back(Segment::make(needs_[i].bytes, i == 0 ? needs_[i].bytes : 0, needs_[i].medium));
    for (const std::shared_ptr<Segment> &segment : segments_) mine.push_back(segment->address());
  } catch (const InputError &error) {
    reason = error.what();
  }
  const std::vector<int> all_processes = link.gather(static_cast<int>(getpid()));
  std::vector<int> processes;
  for (const int rank : ranks_) processes.push_back(all_processes[static_cast<std::size_t>(rank)]);
  neighbours_ = Neighbours(processes);
  std::vector<std::size_t> begins;
  const std::vector<Segment::Address> all = link.gather_lists(std::span<const Segment::Address>(mine), begins);
  if (leads()) return reason;
  const auto leader = static_cast<std::size_t>(ranks_.front());
  if (begins[leader + 1] - begins[leader] != needs_.size())
    return "rank " + std::to_string(leader) + " could not make shared memory";
  for (std::size_t i = begins[leader]; i < begins[leader + 1]; ++i) {
    segments_.push_back(Segment::attach(all[i], reason));
    if (!segments_.back()) return reason;
  }
  return reason;
}

// A lane for each domain of this node, its buffers behind those of the same tier.
void Node::lay_out(std::span<const int> aggregators, const BufferLayout &layout) {
  lane_of_domain_.assign(aggregators.size(), no_lane);
  seats_.clear();
  needs_.assign(1, {});
  std::map<std::uint32_t, std::size_t> segment_of_tier;
  for (std::size_t domain = 0; domain < aggregators.size(); ++domain) {
    if (local_of(aggregators[domain]) < 0) continue;
    const auto [found, is_new] = segment_of_tier.try_emplace(layout.tiers[domain], needs_.size());
    if (is_new) needs_.push_back({layout.media.empty() ? Medium{} : layout.media[layout.tiers[domain]], 0});
    lane_of_domain_[domain] = seats_.size();
    seats_.push_back({found->second, needs_[found->second].bytes, layout.slot_bytes});
    needs_[found->second].bytes += buffers_ * layout.slot_bytes;
  }
  relays_ = Relays(layout.relayed, nodes_, aggregators);
  lay_out_relays(layout);
  bells_at_ = sizeof(NodeEnd);
  outcomes_at_ = bells_at_ + ranks_.size() * sizeof(Bell);
  lanes_at_ = outcomes_at_ + outcome_slots * sizeof(OutcomeSlot);
  tables_at_ = lanes_at_ + seats_.size() * sizeof(Lane);
  needs_.front().bytes = tables_at_;
  for (const Relay *relay : relays_.on_node(ranks_.front()))
    needs_.front().bytes += relay->table_words() * sizeof(std::uint64_t);
}

// Slots hold what the relay's ranks have of a round, which is not more than a buffer, nor than they have in all.
void Node::lay_out_relays(const BufferLayout &layout) {
  table_of_domain_.assign(lane_of_domain_.size(), 0);
  relay_segment_ = 0;
  std::uint64_t words = 0;
  for (const Relay *relay : relays_.on_node(ranks_.front())) {
    if (relay_segment_ == 0) {
      relay_segment_ = needs_.size();
      needs_.emplace_back();
    }
    const std::uint64_t slot_bytes = round_up(std::min(relay->bytes, layout.slot_bytes), AlignedMemory::page_bytes);
    lane_of_domain_[relay->domain] = seats_.size();
    seats_.push_back({relay_segment_, needs_[relay_segment_].bytes, slot_bytes});
    needs_[relay_segment_].bytes += buffers_ * slot_bytes;
    table_of_domain_[relay->domain] = words;
    words += relay->table_words();
  }
}

// Zeroed memory holds all of these in their first state: atomics and bells of no rings.
void Node::place() {
  std::byte *data = segments_.front()->data();
  end_ = reinterpret_cast<NodeEnd *>(data);
  bells_ = reinterpret_cast<Bell *>(data + bells_at_);
  outcomes_ = reinterpret_cast<OutcomeSlot *>(data + outcomes_at_);
  lanes_ = reinterpret_cast<Lane *>(data + lanes_at_);
  tables_ = reinterpret_cast<std::uint64_t *>(data + tables_at_);
}

std::span<std::uint64_t> Node::relay_table(const Relay &relay, std::uint32_t round) const {
  return {tables_ + table_of_domain_[relay.domain] + round * relay.ranks.size(), relay.ranks.size()};
}

void Node::keep_memory() const { new std::vector<std::shared_ptr<Segment>>(segments_); }

std::vector<std::string> Node::places() const {
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < needs_.size(); ++i)
    lines.push_back((i == relay_segment_ ? "ranks of this node put together what they send: "
                                         : "buffers of this node in " + needs_[i].medium.tier + ": ") +
                    format_bytes(segments_[i]->bytes()) + ", " + where(needs_[i].medium));
  return lines;
}

int Node::local_of(int rank) const {
  const auto found = std::ranges::lower_bound(ranks_, rank);
  return found == ranks_.end() || *found != rank ? -1 : static_cast<int>(found - ranks_.begin());
}

std::byte *Node::buffer(std::size_t domain, std::uint64_t round) const {
  const Seat &seat = seats_[lane_of_domain_[domain]];
  return segments_[seat.segment]->data() + seat.begin + round % buffers_ * seat.slot_bytes;
}

void Node::ring_all() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) bells_[i].ring();
}

void Node::sleep(Bell &bell, std::uint32_t heard, std::uint32_t microseconds_most) const {
  if (!has_given_up()) bell.sleep(heard, std::min(microseconds_most, look_after_microseconds));
  look_after_neighbours();
}

void Node::look_after_neighbours() const {
  if (has_given_up()) throw CommunicationError(end_->told.load() != 0 ? end_->reason : reason_here_);
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t before = looked_.load();
  if (now - before < std::int64_t{look_after_microseconds} * 1000 || !looked_.compare_exchange_strong(before, now))
    return;
  if (const int index = neighbours_.gone(); index >= 0)
    throw CommunicationError("rank " + std::to_string(ranks_[static_cast<std::size_t>(index)]) +
                             " has ended before its part was done");
}

void Node::give_up(const std::string &reason) {
  if (end_->claimed.exchange(1) == 0) {
    reason.copy(end_->reason, sizeof end_->reason - 1);
    end_->told = 1;
  }
  if (claimed_here_.exchange(1) == 0) {
    reason_here_ = reason;
    told_here_ = 1;
  }
  ring_all();
  for (const std::size_t lane : lane_of_domain_)
    if (lane != no_lane) lanes_[lane].bell.ring();
}

}  // namespace outcrop::aggregate
