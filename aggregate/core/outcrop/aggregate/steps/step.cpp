#include "outcrop/aggregate/steps/step.hpp"

#include <algorithm>

#include "outcrop/aggregate/text/text.hpp"
#include "outcrop/base/aligned.hpp"

namespace outcrop::aggregate {
namespace {

// A waiting rank sleeps until an event of its node occurs. The arrival of a message from another node causes no event.
// Therefore a rank with messages under way sleeps for at most this time, and then tests whether messages have arrived.
constexpr std::uint32_t poll_microseconds = 100;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Step::Step(Engine &engine, Task task) : engine_(engine), task_(std::move(task)) {}

void Step::start(bool beside) {
  begun_ = Clock::now();
  outcome_.emplace(*engine_.node, engine_.link, engine_.operations++);
  if (task_.failure.happened()) {
    outcome_->record(task_.failure);
    outcome_->mark_incomplete();
  }
  const bool data = task_.kind != Task::none;
  if (data) {
    data_number_ = engine_.data_operations++;
    messages_.emplace(engine_, *outcome_, task_.kind == Task::write, task_.base, data_number_, task_.memory);
  }
  messages_over_ = !data || !messages_->any();
  parts_ = 1 + (data ? static_cast<std::uint32_t>(engine_.aggregators.size()) : 0) + (messages_over_ ? 0 : 1);
  if (!data) return part_done();
  // The tasks of the threads hold a pointer to the step. Therefore the step exists until its last task has ended.
  helped_ = beside || engine_.has_messages();
  own_moved_ = !helped_ && move_own();
  if (!own_moved_) post_jobs();
  if (helped_)
    engine_.copier.post([self = shared_from_this()] { self->run_local(); });
  else
    run_local();
}

void Step::post_jobs() {
  for (std::size_t i = 0; i < engine_.aggregators.size(); ++i) {
    Aggregator &aggregator = *engine_.aggregators[i];
    Sink &sink = *task_.sinks[i];
    aggregator.post({task_.kind == Task::write, data_number_ * aggregator.work().rounds().count(), task_.base,
                     task_.step, &sink, &*outcome_,
                     [self = shared_from_this(), &sink](const JobResult &result) { self->job_done(sink, result); }});
  }
}

void Step::job_done(Sink &sink, JobResult result) {
  const Clock::time_point begin = Clock::now();
  // The last aggregator of this node that has written its part flushes the file. One flush is enough for each node,
  // because the page cache of the operating system holds all writes of the node.
  if (task_.kind == Task::write && task_.durable && outcome_->wrote(engine_.writers)) {
    const Failure flushing = attempt(Failure::flush, engine_.link.rank(), [&] { sink.flush(); });
    if (!result.failure.happened()) result.failure = flushing;
  }
  if (result.failure.happened()) outcome_->record(result.failure);
  seconds_storage_.fetch_add(result.seconds + seconds_since(begin));
  bytes_storage_ += result.bytes;
  part_done();
}

void Step::part_done() {
  if (parts_.fetch_sub(1) == 1) outcome_->arrive();
}

void Step::run_local() {
  const Clock::time_point begin = Clock::now();
  try {
    copy_rounds();
  } catch (const CommunicationError &error) {
    engine_.node->give_up(error.what());
    return;
  } catch (const std::exception &error) {
    engine_.node->give_up(who() + error.what());
    return;
  }
  seconds_filling_ = seconds_since(begin);
  part_done();
}

// Copies this rank's bytes of one round. `index` is the round's index among the rounds in which this rank has bytes.
void Step::copy_round(const Contribution &contribution, std::size_t index) {
  if (task_.memory.empty()) return;
  const bool write = task_.kind == Task::write;
  const std::uint32_t round = contribution.mine[index];
  std::byte *buffer = engine_.node->buffer(contribution.domain, data_number_ * contribution.rounds.count() + round);
  if (contribution.relay != nullptr) {  // the buffer is the slot of a relay
    std::byte *position = buffer + contribution.offsets[index];
    for (const BufferedRange &range : contribution.rounds.of(round))
      position += copy_packed(write, engine_.pattern, range.file, task_.memory, position);
    return;
  }
  buffer += task_.base % AlignedMemory::page_bytes;
  for (const BufferedRange &range : contribution.rounds.of(round))
    copy_local(write, engine_.pattern, range.file, task_.memory, buffer + range.position);
}

// Wakes the aggregator or relay that has opened a round.
void Step::notify_opener(const Contribution &contribution) {
  const Node &node = *engine_.node;
  if (contribution.relay != nullptr)
    node.event(static_cast<std::size_t>(node.local_of(contribution.relay->rank))).notify();
  else
    node.round_state(contribution.domain).event.notify();
}

// Copies the rounds of all domains. The function copies each round as soon as the round is opened, so that no
// aggregator must wait for another aggregator.
void Step::copy_rounds() {
  if (own_moved_) return;
  struct Cursor {
    const Contribution *contribution;
    std::size_t next = 0;
  };
  Node &node = *engine_.node;
  std::vector<Cursor> cursors;
  for (const Contribution &contribution : engine_.contributions)
    if (!contribution.sent_by_rank() && !contribution.mine.empty()) cursors.push_back({&contribution});
  Clock::time_point moved_last = Clock::now();
  while (!cursors.empty()) {
    const std::uint32_t seen = node.event().count();
    bool moved = false;
    for (Cursor &cursor : cursors) {
      const Contribution &contribution = *cursor.contribution;
      const std::uint64_t first = data_number_ * contribution.rounds.count();
      while (cursor.next < contribution.mine.size()) {
        const std::uint32_t round = contribution.mine[cursor.next];
        if (!node.opened(contribution.domain, first + round)) break;
        const Clock::time_point begin = Clock::now();
        copy_round(contribution, cursor.next);
        seconds_copying_.fetch_add(seconds_since(begin));
        if (node.pending(contribution.domain, first + round).fetch_sub(1) == 1) notify_opener(contribution);
        ++cursor.next;
        moved = true;
      }
    }
    std::erase_if(cursors, [](const Cursor &cursor) { return cursor.next == cursor.contribution->mine.size(); });
    if (moved)
      moved_last = Clock::now();
    else if (!cursors.empty())
      node.wait(node.event(), seen, helped_ ? Node::check_after_microseconds : microseconds_left(moved_last));
  }
}

// If this rank performs its own I/O through the page cache, the function moves the rank's bytes between the file and
// the memory without a buffer, and returns true. Otherwise returns false. In a read, each rank of a node begins with a
// different extent. If ranks read neighbouring extents at the same time, the reads slow each other down in the page
// cache.
bool Step::move_own() {
  if (!engine_.summary.own || task_.memory.empty() || engine_.aggregators.size() != 1) return false;
  if (engine_.under_way.size() > 1) return false;  // the I/O thread may be using the sink
  const std::shared_ptr<Sink> &sink = task_.sinks.front();
  const bool write = task_.kind == Task::write;
  const Range &hull = engine_.summary.hull;
  if (write ? !sink->writes_buffered() : !sink->reads_buffered(task_.base + hull.begin, hull.bytes())) return false;
  const Clock::time_point begin = Clock::now();
  const Failure failure = attempt(write ? Failure::write : Failure::read, engine_.link.rank(), [&] {
    move_runs(engine_.pattern, task_.memory, task_.base, write ? 0 : engine_.node->local(),
              [&](std::uint64_t offset, std::byte *data, std::size_t length) {
                if (write)
                  sink->write(offset, data, length);
                else
                  sink->read(offset, data, length);
              });
  });
  job_done(*sink, {failure, seconds_since(begin), engine_.pattern.bytes()});
  return true;
}

bool Step::advance() {
  if (!messages_over_ && messages_->advance()) {
    messages_over_ = true;
    seconds_messages_ = seconds_since(begun_);
    part_done();
  }
  if (!messages_over_) return false;
  return outcome_->advance() && outcome_->settled();
}

void Step::finish() {
  failure_ = outcome_->failure();
  if (task_.succeeded && !failure_.happened()) task_.succeeded();
  task_.sinks.clear();  // a caller may keep the step, but the step must not keep the file open
  seconds_ = seconds_since(begun_);
  over_ = true;
}

// Runs act(). Runs act(). If act() throws an exception, the function ends all operations of this rank and throws a
// CommunicationError.
template <typename Act>
auto Step::or_break_off(Act &&act) {
  try {
    return act();
  } catch (const CommunicationError &error) {
    engine_.break_off(error.what());
    throw;
  } catch (const std::exception &error) {  // for example, there is too little memory for a message
    const std::string reason = who() + error.what();
    engine_.break_off(reason);
    throw CommunicationError(reason);
  }
}

void Step::advance_all() {
  or_break_off([this] {
    engine_.advance();
    engine_.node->check_processes();
  });
}

bool Step::test() {
  if (!over_) advance_all();
  if (over_) failure_.raise();
  return over_;
}

void Step::wait() {
  settle();
  failure_.raise();
}

// Returns the time for which a waiting rank may sleep. `begin` is the time at which the rank began to wait. Throws an
// error if the rank has waited longer than the limit that the user has set. Only the user can choose the limit. A rank
// cannot find out whether a rank on another node is slow or has ended.
std::uint32_t Step::microseconds_left(Clock::time_point begin) const {
  const double limit = engine_.link.seconds_most();
  if (limit == 0) return Node::check_after_microseconds;
  const double left = limit - seconds_since(begin);
  if (left <= 0)
    throw CommunicationError(who() + "other ranks have not responded within " + format_seconds(limit) +
                             ", the limit of the setting seconds_most");
  return static_cast<std::uint32_t>(std::min<double>(Node::check_after_microseconds, left * 1e6 + 1));
}

void Step::settle() {
  Node &node = *engine_.node;
  const Clock::time_point begin = Clock::now();
  while (!over_) {
    const std::uint32_t seen = node.event().count();
    advance_all();
    if (over_) break;
    const std::uint32_t left = or_break_off([&] { return microseconds_left(begin); });
    node.event().wait(seen, engine_.sends() ? std::min(left, poll_microseconds) : left);
  }
}

std::optional<double> Timing::overlap() const {
  const double shorter = std::min(seconds_copying, seconds_storage);
  if (shorter <= 0) return std::nullopt;
  return std::clamp((seconds_copying + seconds_storage - seconds) / shorter, 0.0, 1.0);
}

Timing Step::timing() const {
  return {seconds_, seconds_copying_, seconds_filling_, seconds_storage_, seconds_messages_, bytes_storage_};
}

}  // namespace outcrop::aggregate
