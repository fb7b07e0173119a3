#include "outcrop/aggregate/node/node.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <utility>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

// --- waiting --------------------------------------------------------------------------------------------------------

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

// The operations on the two counters are sequentially consistent. Therefore no notification is lost. One of two things
// happens. Either notify() sees that a thread waits. Or the system sees the new count, and does not let the thread
// sleep. If a waiting process is killed, `waiting_` stays too large. Then notify() makes unnecessary system calls,
// which do no harm.
void EventCount::notify() {
  notifications_.fetch_add(1);
  if (waiting_.load() > 0) syscall(SYS_futex, &notifications_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void EventCount::wait(std::uint32_t seen, std::uint32_t max_microseconds) {
  const timespec limit{static_cast<time_t>(max_microseconds / 1000000),
                       static_cast<long>(max_microseconds % 1000000) * 1000};
  waiting_.fetch_add(1);
  if (notifications_.load() == seen) syscall(SYS_futex, &notifications_, FUTEX_WAIT, seen, &limit, nullptr, 0);
  waiting_.fetch_sub(1);
}

ProcessWatch::ProcessWatch(std::span<const int> processes) {
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (processes[i] == getpid()) continue;
    const long handle = syscall(SYS_pidfd_open, processes[i], 0);
    processes_.push_back({static_cast<int>(i), processes[i], Descriptor(handle < 0 ? -1 : static_cast<int>(handle))});
  }
}

int ProcessWatch::ended() const {
  for (const Process &process : processes_) {
    if (process.handle.get() < 0) {
      if (kill(process.number, 0) != 0 && errno == ESRCH) return process.index;
      continue;
    }
    pollfd state{process.handle.get(), POLLIN, 0};  // POLLIN means that the process has ended
    if (poll(&state, 1, 0) == 1) return process.index;
  }
  return -1;
}

// --- relays ---------------------------------------------------------------------------------------------------------

// The maximum size of a relay's table. If a relay's table would be larger than this, there is no relay, and each rank
// sends its own messages.
constexpr std::uint64_t max_table_words = std::uint64_t{1} << 20;

std::size_t Relay::place_of(int rank_of_node) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(ranks, rank_of_node) - ranks.begin());
}

Relays::Relays(const RelayInputs &inputs, std::span<const int> nodes, std::span<const int> aggregators) {
  std::map<std::pair<int, std::size_t>, std::uint64_t> max_bytes;
  for (const Tally &tally : inputs.tallies) {
    const int rank = static_cast<int>(tally.rank), node = nodes[tally.rank];
    if (node == nodes[static_cast<std::size_t>(aggregators[tally.domain])]) continue;
    const std::pair<int, std::size_t> key{node, tally.domain};
    Relay &relay = relays_[key];
    relay.domain = tally.domain;
    relay.rounds = inputs.rounds[tally.domain];
    relay.ranks.push_back(rank);
    relay.bytes += tally.bytes;
    if (tally.bytes > max_bytes[key]) {
      max_bytes[key] = tally.bytes;
      relay.rank = rank;
    }
  }
  std::erase_if(relays_, [](const auto &each) {
    return each.second.ranks.size() < 2 || each.second.table_words() > max_table_words;
  });
}

const Relay *Relays::find(std::size_t domain, int node) const {
  const auto found = relays_.find({node, domain});
  return found == relays_.end() ? nullptr : &found->second;
}

std::vector<const Relay *> Relays::on_node(int node) const {
  std::vector<const Relay *> relays;
  for (auto each = relays_.lower_bound({node, 0}); each != relays_.end() && each->first.first == node; ++each)
    relays.push_back(&each->second);
  return relays;
}

// --- failures -------------------------------------------------------------------------------------------------------

Failure Failure::of(Kind kind, int rank, const std::string &text) {
  Failure failure{kind, rank};
  text.copy(failure.text, sizeof failure.text - 1);
  return failure;
}

Failure Failure::of(Kind kind, int rank, const StorageError &error) {
  Failure failure = of(kind, rank, error.path);
  failure.error = error.error;
  failure.offset = error.offset;
  failure.length = error.length;
  return failure;
}

void Failure::raise() const {
  static constexpr std::array names{"", "write", "read", "flush", "open", "create"};
  if (!happened()) return;
  const std::string who = "rank " + std::to_string(rank);
  if (kind == input) throw InputError(who + ": " + text);
  if (kind == corruption) throw CorruptionError(who + ": " + text);
  throw StorageError(std::string(names.at(static_cast<std::size_t>(kind))) + " by " + who, text, offset, length, error);
}

// --- outcomes -------------------------------------------------------------------------------------------------------

namespace {

constexpr int tag_up = 32767, tag_down = 32766;

std::span<const std::byte> bytes_of(const Failure &failure) { return std::as_bytes(std::span(&failure, 1)); }
std::span<std::byte> bytes_of(Failure &failure) { return std::as_writable_bytes(std::span(&failure, 1)); }

}  // namespace

Outcome::Outcome(Node &node, const Link &link, std::uint64_t operation)
    : node_(node), link_(link), operation_(operation) {
  const std::vector<int> &leaders = node.leaders();
  if (!node.leads() || leaders.size() == 1) {
    phase_ = Phase::over;
    return;
  }
  const auto own = static_cast<std::size_t>(std::ranges::lower_bound(leaders, link.rank()) - leaders.begin());
  if (own > 0) parent_ = leaders[(own - 1) / 2];
  for (std::size_t child = 2 * own + 1; child <= 2 * own + 2 && child < leaders.size(); ++child)
    children_.push_back(leaders[child]);
}

void Outcome::record(const Failure &failure) {
  OutcomeSlot &slot = node_.outcome(operation_);
  if (slot.claimed.exchange(1) == 0) slot.failure = failure;
}

void Outcome::mark_incomplete() { node_.outcome(operation_).is_incomplete = 1; }
bool Outcome::is_incomplete() const { return node_.outcome(operation_).is_incomplete.load() != 0; }

bool Outcome::wrote(std::uint32_t writers) { return node_.outcome(operation_).written.fetch_add(1) + 1 == writers; }

void Outcome::arrive() {
  OutcomeSlot &slot = node_.outcome(operation_);
  if (slot.arrived.fetch_add(1) + 1 < node_.ranks().size()) return;
  OutcomeSlot &next = node_.outcome(operation_ + max_under_way);
  next.arrived = next.written = next.claimed = next.is_incomplete = 0;
  next.failure = {};
  slot.node_ready = operation_ + 1;
  if (node_.leaders().size() == 1)
    settle();
  else
    node_.event(0).notify();
}

bool Outcome::settled() const { return node_.outcome(operation_).settled.load() == operation_ + 1; }
const Failure &Outcome::failure() const { return node_.outcome(operation_).failure; }

void Outcome::settle() {
  node_.outcome(operation_).settled = operation_ + 1;
  node_.notify_all();
}

void Outcome::post_receives() {
  for (std::size_t i = 0; i < children_.size(); ++i)
    requests_.push_back(link_.receive(bytes_of(from_children_[i]), children_[i], tag_up));
  if (parent_ >= 0) requests_.push_back(link_.receive(bytes_of(final_), parent_, tag_down));
}

// Collects the outcomes of this leader's node, and the outcomes of the leaders below this leader in the tree. Returns
// false if at least one outcome is not known yet. Otherwise sends the first failure to the parent of this leader, and
// returns true.
bool Outcome::send_up() {
  const OutcomeSlot &slot = node_.outcome(operation_);
  if (slot.node_ready.load() != operation_ + 1 || !link_.test(std::span(requests_).first(children_.size())))
    return false;
  Failure merged = slot.failure;
  for (std::size_t i = 0; i < children_.size() && !merged.happened(); ++i) merged = from_children_[i];
  if (parent_ >= 0) {
    from_children_[0] = merged;  // this copy exists until the message has been sent
    requests_.push_back(link_.send(bytes_of(std::as_const(from_children_[0])), parent_, tag_up));
  } else {
    final_ = merged;
  }
  return true;
}

void Outcome::send_down() {
  for (const int child : children_) requests_.push_back(link_.send(bytes_of(std::as_const(final_)), child, tag_down));
  node_.outcome(operation_).failure = final_;
  settle();
}

bool Outcome::advance() {
  if (phase_ == Phase::begin) {
    post_receives();
    phase_ = Phase::up;
  }
  if (phase_ == Phase::up && send_up()) phase_ = Phase::down;
  if (phase_ == Phase::down && link_.test(requests_)) {
    send_down();
    phase_ = Phase::sent;
  }
  if (phase_ == Phase::sent && link_.test(requests_)) phase_ = Phase::over;
  return phase_ == Phase::over;
}

// --- the node -------------------------------------------------------------------------------------------------------

constexpr std::size_t no_state = ~std::size_t{0};

Node::Node(const Link &link, std::span<const int> aggregators, const BufferLayout &layout)
    : nodes_(link.gather(link.node())), buffers_(layout.buffers) {
  share(link, aggregators, layout);
  place();
  leaders_ = nodes_;
  std::ranges::sort(leaders_);
  leaders_.erase(std::ranges::unique(leaders_).begin(), leaders_.end());
}

// Makes the shared memory in one or two attempts. The first attempt assumes the nodes that the transport reports. If
// the ranks of a node cannot share memory, the second attempt treats each rank of this node as a separate node.
void Node::share(const Link &link, std::span<const int> aggregators, const BufferLayout &layout) {
  struct SharingFailure {
    char text[300];
  };
  for (bool alone = false;; alone = true) {
    find_ranks(link.rank());
    lay_out(aggregators, layout);
    const std::string reason = take_segments(link);
    if (!reason.empty()) notes_.push_back(reason);
    SharingFailure mine{};
    reason.copy(mine.text, sizeof mine.text - 1);
    const std::vector<SharingFailure> all = link.gather(mine);
    const auto failed = std::ranges::find_if(all, [](const SharingFailure &each) { return each.text[0] != 0; });
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

// All ranks must call this function. The first rank of each node makes the node's segments, and the other ranks map
// them. Returns the error of this rank, or "" if this rank has no error.
std::string Node::take_segments(const Link &link) {
  std::string reason;
  std::vector<Segment::Address> mine;
  try {
    for (std::size_t i = 0; leads() && i < specs_.size(); ++i)
      segments_.push_back(Segment::make(specs_[i].bytes, i == 0 ? specs_[i].bytes : 0, specs_[i].medium));
    for (const std::shared_ptr<Segment> &segment : segments_) mine.push_back(segment->address());
  } catch (const InputError &error) {
    reason = error.what();
  }
  const std::vector<int> all_processes = link.gather(static_cast<int>(getpid()));
  std::vector<int> processes;
  for (const int rank : ranks_) processes.push_back(all_processes[static_cast<std::size_t>(rank)]);
  processes_ = ProcessWatch(processes);
  std::vector<std::size_t> begins;
  const std::vector<Segment::Address> all = link.gather_lists(mine, &begins);
  if (leads()) return reason;
  const auto leader = static_cast<std::size_t>(ranks_.front());
  if (begins[leader + 1] - begins[leader] != specs_.size())
    return "rank " + std::to_string(leader) + " could not make shared memory";
  for (std::size_t i = begins[leader]; i < begins[leader + 1]; ++i) {
    segments_.push_back(Segment::attach(all[i], reason));
    if (!segments_.back()) return reason;
  }
  return reason;
}

// Determines the segments of this node, and the places of round states and buffers. The memory contains one round state
// for each domain of this node. Each tier in use has one segment. The segment contains the buffers of all domains on
// the tier.
void Node::lay_out(std::span<const int> aggregators, const BufferLayout &layout) {
  state_of_domain_.assign(aggregators.size(), no_state);
  locations_.clear();
  specs_.assign(1, {});
  std::map<std::uint32_t, std::size_t> segment_of_tier;
  for (std::size_t domain = 0; domain < aggregators.size(); ++domain) {
    if (local_of(aggregators[domain]) < 0) continue;
    const auto [found, added] = segment_of_tier.try_emplace(layout.tiers[domain], specs_.size());
    if (added) specs_.push_back({layout.media.empty() ? Medium{} : layout.media[layout.tiers[domain]], 0});
    state_of_domain_[domain] = locations_.size();
    locations_.push_back({found->second, specs_[found->second].bytes, layout.slot_bytes});
    specs_[found->second].bytes += buffers_ * layout.slot_bytes;
  }
  relays_ = Relays(layout.relayed, nodes_, aggregators);
  lay_out_relays(layout);
  specs_.front().bytes = sizeof(NodeEnd) + ranks_.size() * sizeof(EventCount) + outcome_slots * sizeof(OutcomeSlot) +
                         locations_.size() * sizeof(RoundState);
  for (const Relay *relay : relays_.on_node(ranks_.front()))
    specs_.front().bytes += relay->table_words() * sizeof(std::uint64_t);
}

// Adds the tables and slots of the relays to the layout. A slot holds the bytes of all ranks of a relay in one round. A
// round fits into a buffer, so a slot is not larger than a buffer. If the ranks of a relay have fewer bytes in the
// whole domain than a buffer holds, the slot has room only for these bytes. A message of a write has one additional
// byte (Messages).
void Node::lay_out_relays(const BufferLayout &layout) {
  table_of_domain_.assign(state_of_domain_.size(), 0);
  relay_segment_ = 0;
  std::uint64_t words = 0;
  for (const Relay *relay : relays_.on_node(ranks_.front())) {
    if (relay_segment_ == 0) {
      relay_segment_ = specs_.size();
      specs_.emplace_back();
    }
    const std::uint64_t slot_bytes = round_up(std::min(relay->bytes + 1, layout.slot_bytes), AlignedMemory::page_bytes);
    state_of_domain_[relay->domain] = locations_.size();
    locations_.push_back({relay_segment_, specs_[relay_segment_].bytes, slot_bytes});
    specs_[relay_segment_].bytes += buffers_ * slot_bytes;
    table_of_domain_[relay->domain] = words;
    words += relay->table_words();
  }
}

// Finds the addresses of all parts of the first segment. The segment contains only zeros, and zeros are a valid initial
// state of each part.
void Node::place() {
  end_ = reinterpret_cast<NodeEnd *>(segments_.front()->data());
  events_ = reinterpret_cast<EventCount *>(end_ + 1);
  outcomes_ = reinterpret_cast<OutcomeSlot *>(events_ + ranks_.size());
  round_states_ = reinterpret_cast<RoundState *>(outcomes_ + outcome_slots);
  tables_ = reinterpret_cast<std::uint64_t *>(round_states_ + locations_.size());
}

std::span<std::uint64_t> Node::relay_table(const Relay &relay, std::uint32_t round) const {
  return {tables_ + table_of_domain_[relay.domain] + round * relay.ranks.size(), relay.ranks.size()};
}

void Node::keep_memory() const { new std::vector<std::shared_ptr<Segment>>(segments_); }

std::vector<std::string> Node::places() const {
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < specs_.size(); ++i)
    lines.push_back((i == relay_segment_ ? "messages that ranks of this node send together: "
                                         : "buffers of this node in " + specs_[i].medium.tier + ": ") +
                    format_bytes(segments_[i]->bytes()) + ", " + where(specs_[i].medium));
  return lines;
}

int Node::local_of(int rank) const {
  const auto found = std::ranges::lower_bound(ranks_, rank);
  return found == ranks_.end() || *found != rank ? -1 : static_cast<int>(found - ranks_.begin());
}

std::byte *Node::buffer(std::size_t domain, std::uint64_t round) const {
  const BufferLocation &at = locations_[state_of_domain_[domain]];
  return segments_[at.segment]->data() + at.begin + round % buffers_ * at.slot_bytes;
}

void Node::open_round(std::size_t domain, std::uint64_t number, std::uint32_t parts,
                      std::span<const std::uint32_t> locals) const {
  pending(domain, number).store(parts);
  round_state(domain).opened.store(number + 1);
  for (const std::uint32_t local : locals) event(local).notify();
}

void Node::notify_all() const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) events_[i].notify();
}

void Node::wait(EventCount &event, std::uint32_t seen, std::uint32_t max_microseconds) const {
  if (!given_up()) event.wait(seen, std::min(max_microseconds, check_after_microseconds));
  check_processes();
}

void Node::check_processes() const {
  if (given_up()) throw CommunicationError(end_->is_written.load() != 0 ? end_->reason : reason_here_);
  const std::int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t before = checked_at_.load();
  if (now - before < std::int64_t{check_after_microseconds} * 1000 || !checked_at_.compare_exchange_strong(before, now))
    return;
  if (const int index = processes_.ended(); index >= 0)
    throw CommunicationError("rank " + std::to_string(ranks_[static_cast<std::size_t>(index)]) +
                             " has ended before its work was complete");
}

void Node::give_up(const std::string &reason) {
  if (end_->claimed.exchange(1) == 0) {
    reason.copy(end_->reason, sizeof end_->reason - 1);
    end_->is_written = 1;
  }
  if (claimed_here_.exchange(1) == 0) {
    reason_here_ = reason;
    has_reason_here_ = 1;
  }
  notify_all();
  for (const std::size_t state : state_of_domain_)
    if (state != no_state) round_states_[state].event.notify();
}

}  // namespace outcrop::aggregate
