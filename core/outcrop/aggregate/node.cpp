#include "outcrop/aggregate/node.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"
#include "outcrop/base/round.hpp"

namespace outcrop::aggregate {
namespace {

constexpr std::size_t no_lane = ~std::size_t{0};

}  // namespace

Node::Node(const Link &link, std::span<const int> aggregators, std::uint64_t slot_bytes, std::uint32_t buffers)
    : nodes_(link.gather(link.node())), slot_bytes_(slot_bytes), buffers_(buffers) {
  share(link, aggregators);
  place();
  leaders_ = nodes_;
  std::ranges::sort(leaders_);
  leaders_.erase(std::ranges::unique(leaders_).begin(), leaders_.end());
}

// Two attempts: by nodes, and if on any node that does not work, each rank there for itself.
void Node::share(const Link &link, std::span<const int> aggregators) {
  for (bool alone = false;; alone = true) {
    ranks_.clear();
    for (int rank = 0; rank < link.size(); ++rank)
      if (nodes_[static_cast<std::size_t>(rank)] == nodes_[static_cast<std::size_t>(link.rank())])
        ranks_.push_back(rank);
    local_ = static_cast<std::size_t>(std::ranges::find(ranks_, link.rank()) - ranks_.begin());
    std::string reason;
    Segment::Address mine;
    try {
      const std::uint64_t bytes = lay_out(aggregators);
      segment_ = leads() ? Segment::make(bytes, buffers_at_) : nullptr;
      if (segment_) mine = segment_->address();
    } catch (const InputError &error) {
      reason = error.what();
    }
    mine.process = static_cast<std::int32_t>(getpid());
    const std::vector<Segment::Address> all = link.gather(mine);
    const Segment::Address &leaders = all[static_cast<std::size_t>(ranks_.front())];
    if (!leads() && leaders.descriptor >= 0) segment_ = Segment::attach(leaders, reason);
    if (!segment_ && reason.empty())
      reason = "rank " + std::to_string(ranks_.front()) + " could not make shared memory";
    if (!segment_) notes_.push_back(reason);
    const std::vector<char> shared = link.gather(static_cast<char>(segment_ != nullptr));
    std::vector<int> processes;
    for (const int rank : ranks_) processes.push_back(all[static_cast<std::size_t>(rank)].process);
    neighbours_ = Neighbours(processes);
    if (std::ranges::all_of(shared, [](char each) { return each != 0; })) return;
    if (alone) {
      const auto failed = std::ranges::find(shared, char{0}) - shared.begin();
      throw InputError(segment_ ? "rank " + std::to_string(failed) + " has no memory for buffers" : reason);
    }
    segment_.reset();
    std::vector<int> nodes = nodes_;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      for (std::size_t other = 0; other < nodes.size(); ++other)
        if (shared[other] == 0 && nodes_[other] == nodes_[rank]) nodes[rank] = static_cast<int>(rank);
    nodes_ = std::move(nodes);
  }
}

std::uint64_t Node::lay_out(std::span<const int> aggregators) {
  lane_of_domain_.assign(aggregators.size(), no_lane);
  std::size_t lanes = 0;
  for (std::size_t domain = 0; domain < aggregators.size(); ++domain)
    if (local_of(aggregators[domain]) >= 0) lane_of_domain_[domain] = lanes++;
  bells_at_ = sizeof(NodeEnd);
  outcomes_at_ = bells_at_ + ranks_.size() * sizeof(Bell);
  lanes_at_ = outcomes_at_ + outcome_slots * sizeof(OutcomeSlot);
  // Buffers begin at a huge page, so that none lies half in one.
  const std::uint64_t before = lanes_at_ + lanes * sizeof(Lane);
  buffers_at_ = round_up(before, AlignedMemory::huge_bytes);
  return lanes == 0 ? before : buffers_at_ + lanes * buffers_ * slot_bytes_;
}

// Zeroed memory holds all of these in their first state: atomics and bells of no rings.
void Node::place() {
  std::byte *data = segment_->data();
  end_ = reinterpret_cast<NodeEnd *>(data);
  bells_ = reinterpret_cast<Bell *>(data + bells_at_);
  outcomes_ = reinterpret_cast<OutcomeSlot *>(data + outcomes_at_);
  lanes_ = reinterpret_cast<Lane *>(data + lanes_at_);
}

int Node::local_of(int rank) const {
  const auto found = std::ranges::lower_bound(ranks_, rank);
  return found == ranks_.end() || *found != rank ? -1 : static_cast<int>(found - ranks_.begin());
}

std::byte *Node::buffer(std::size_t domain, std::uint64_t round) const {
  return segment_->data() + buffers_at_ + (lane_of_domain_[domain] * buffers_ + round % buffers_) * slot_bytes_;
}

void Node::ring_all() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) bells_[i].ring();
}

void Node::sleep(Bell &bell, std::uint32_t heard) const {
  if (end_->told.load() == 0) bell.sleep(heard, look_after_microseconds);
  look_after_neighbours();
}

void Node::look_after_neighbours() const {
  if (end_->told.load() != 0) throw CommunicationError(end_->reason);
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
  ring_all();
  for (const std::size_t lane : lane_of_domain_)
    if (lane != no_lane) lanes_[lane].bell.ring();
}

}  // namespace outcrop::aggregate
