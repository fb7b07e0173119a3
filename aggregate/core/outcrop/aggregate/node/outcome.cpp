#include "outcrop/aggregate/node/outcome.hpp"

#include <algorithm>
#include <utility>

#include "outcrop/aggregate/node/node.hpp"

namespace outcrop::aggregate {

// --- failures ------------------------------------------------------------------------------------------------------

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

// --- outcomes ------------------------------------------------------------------------------------------------------

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

bool Outcome::wrote(std::uint32_t writers) { return node_.outcome(operation_).written.fetch_add(1) + 1 == writers; }

void Outcome::arrive() {
  OutcomeSlot &slot = node_.outcome(operation_);
  if (slot.arrived.fetch_add(1) + 1 < node_.ranks().size()) return;
  OutcomeSlot &next = node_.outcome(operation_ + max_under_way);
  next.arrived = next.written = next.claimed = 0;
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

// Collects the outcomes of this node and of all leaders below this leader in the tree. Returns false if an outcome is
// not known yet. Otherwise sends the first failure to this leader's parent, and returns true.
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

}  // namespace outcrop::aggregate
