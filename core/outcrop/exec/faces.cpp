#include "outcrop/exec/faces.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "outcrop/base/error.hpp"

namespace outcrop {
namespace {

// maximum number of bytes that a thread transfers by one system call, if these bytes belong to several jobs
constexpr std::size_t batch_bytes = std::size_t{1} << 20;

bool overlaps(std::span<const std::span<std::byte>> batch, std::span<std::byte> rows) {
  return std::ranges::any_of(batch, [&](std::span<std::byte> one) {
    return one.data() < rows.data() + rows.size() && rows.data() < one.data() + one.size();
  });
}

}  // namespace

Faces::Faces(const Links &links, Pump &pump, std::size_t capacity) : links_(links), pump_(pump) {
  for (std::size_t side = 0; side < side_count; ++side)
    for (std::size_t direction = 0; direction < lane_of_.size() && links[side] != nullptr; ++direction)
      lane_of_[direction][side] = &lanes_.emplace_back(*links[side], direction, std::max<std::size_t>(capacity, 1));
  try {
    for (Lane &lane : lanes_) lane.thread = std::thread([this, &lane] { loop(lane); });
  } catch (...) {  // the system has refused to start another thread
    stop();
    throw;
  }
}

Faces::~Faces() { stop(); }

void Faces::stop() {
  bool is_busy;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    is_busy = std::ranges::any_of(lanes_, [](const Lane &lane) { return lane.jobs.count() > 0; });
  }
  if (is_busy) cancel_links();
  for (Lane &lane : lanes_) {
    lane.work.notify_one();
    if (lane.thread.joinable()) lane.thread.join();
  }
}

Ticket Faces::submit(std::size_t direction, std::size_t side, std::span<const Job> jobs) {
  Lane *const lane = lane_of_[direction][side];
  if (lane == nullptr) throw InputError("the plan has faces on side ", side, ", where the rank has no neighbour");
  std::unique_lock lock(mutex_);
  const Ticket first = lane->submitted + 1;
  for (const Job &job : jobs) {
    if (lane->jobs.count() == lane->jobs.size()) lane->work.notify_one();
    finished_.wait(lock, [&] { return stopped() || lane->jobs.count() < lane->jobs.size(); });
    throw_if_stopped();
    lane->jobs.push(job);
    ++lane->submitted;
  }
  lock.unlock();
  lane->work.notify_one();
  return first;
}

void Faces::wait(std::size_t direction, std::size_t side, Ticket ticket) {
  if (ticket == no_ticket) return;
  const Lane &lane = *lane_of_[direction][side];
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return stopped() || lane.finished >= ticket; });
  throw_if_stopped();
}

void Faces::drain() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] {
    return stopped() || std::ranges::all_of(lanes_, [](const Lane &lane) { return lane.jobs.count() == 0; });
  });
  throw_if_stopped();
}

void Faces::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  cancel_links();
  finished_.notify_all();
}

void Faces::cancel_links() const {
  for (Link *const link : links_)
    if (link != nullptr) link->cancel();
}

void Faces::throw_if_stopped() const {
  if (failure_) std::rethrow_exception(failure_);
  if (cancelled_) throw Cancelled("the transfer of faces was cancelled");
}

// Keeps the first failure, and cancels all jobs. The cancellation makes the other threads fail as well. Their failures
// are not kept.
void Faces::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped()) failure_ = std::move(failure);
  }
  cancel_links();
  finished_.notify_all();
}

void Faces::loop(Lane &lane) {
  std::array<std::span<std::byte>, Link::max_batch> batch;
  const Link::Completed completed = [&](std::size_t count) { finish(lane, count); };
  for (;;) {
    try {
      std::unique_lock lock(mutex_);
      lane.work.wait(lock, [&] { return stopping_ || lane.jobs.count() > 0; });
      if (stopping_ || stopped()) return;
      const Ticket after = lane.jobs.front().after;
      lock.unlock();
      pump_.wait(after);
      lock.lock();
      const Link::Messages messages(batch.data(), gather(lane, batch));
      lock.unlock();
      if (lane.direction == 0)
        lane.link.send(messages, completed);
      else
        lane.link.receive(messages, completed);
    } catch (...) {
      return fail(std::current_exception());
    }
  }
}

// Collects jobs from the front of the queue `lane`. One system call can then transfer the collected jobs together.
// Stores the rows of the collected jobs in `batch`, and returns the number of these jobs. The caller has checked that
// the first job can begin. A later job is added only if the later job can also begin now. Therefore no job waits for a
// later job. If two jobs receive the same rows, only the first job is added. The rows must be checked before the second
// job overwrites them.
std::size_t Faces::gather(const Lane &lane, std::span<std::span<std::byte>> batch) const {
  std::size_t count = 0, bytes = 0;
  Ticket begun = lane.jobs.front().after;
  for (; count < std::min(lane.jobs.count(), batch.size()); ++count) {
    const Job &job = lane.jobs.at(count);
    bytes += job.rows.size();
    if (count > 0 && (bytes > batch_bytes || (job.after != begun && !pump_.done(job.after)))) break;
    if (lane.direction == 1 && overlaps(batch.first(count), job.rows)) break;
    begun = job.after;
    batch[count] = job.rows;
  }
  return count;
}

void Faces::finish(Lane &lane, std::size_t count) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count; ++i) bytes_[lane.direction] += lane.jobs.pop().rows.size();
  lane.finished += count;
  finished_.notify_all();
}

// For each side, waits for the last job that transfers some of the rows y0 <= y < y1. Then removes this job and all
// earlier jobs of the same side from the list. The earlier jobs have also ended, because the jobs of a side end in
// order.
template <typename Wait>
void SlotFaces::wait_for(std::vector<Rows> &jobs, long y0, long y1, const Wait &wait) {
  if (jobs.empty()) return;
  std::array<Ticket, side_count> last{};
  for (const Rows &job : jobs)
    if (job.y0 < y1 && y0 < job.y1) last[job.side] = std::max(last[job.side], job.ticket);
  for (std::size_t side = 0; side < side_count; ++side) wait(side, last[side]);
  std::erase_if(jobs, [&](const Rows &job) { return job.ticket <= last[job.side]; });
}

void SlotFaces::wait_until_sent(Faces &faces, long y0, long y1) {
  wait_for(sending_, y0, y1, [&](std::size_t side, Ticket ticket) { faces.wait_until_sent(side, ticket); });
}

void SlotFaces::wait_until_received(Faces &faces, long y0, long y1) {
  wait_for(receiving_, y0, y1, [&](std::size_t side, Ticket ticket) { faces.wait_until_received(side, ticket); });
}

void SlotFaces::wait(Faces &faces) {
  constexpr long first = std::numeric_limits<long>::min(), last = std::numeric_limits<long>::max();
  wait_until_sent(faces, first, last);
  wait_until_received(faces, first, last);
}

}  // namespace outcrop
