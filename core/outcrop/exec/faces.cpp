#include "outcrop/exec/faces.hpp"

#include <algorithm>
#include <utility>

#include "outcrop/base/error.hpp"

namespace outcrop {

Faces::Faces(const Links &links, Pump &pump, std::size_t capacity) : links_(links), pump_(pump) {
  for (std::size_t side = 0; side < side_count; ++side)
    for (std::size_t direction = 0; direction < lane_of_.size() && links[side] != nullptr; ++direction)
      lane_of_[direction][side] = &lanes_.emplace_back(*links[side], direction, std::max<std::size_t>(capacity, 1));
  try {
    for (Lane &lane : lanes_) lane.thread = std::thread([this, &lane] { loop(lane); });
  } catch (...) {  // the system gives no more threads
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

Ticket Faces::submit(std::size_t direction, std::size_t side, std::span<std::byte> rows, Ticket after) {
  Lane *const lane = lane_of_[direction][side];
  if (lane == nullptr) throw InputError("the plan has faces on side ", side, ", where the rank has no neighbour");
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return stopped() || lane->jobs.count() < lane->jobs.size(); });
  throw_if_stopped();
  lane->jobs.push(Job{rows, after});
  const Ticket ticket = ++lane->submitted;
  lock.unlock();
  lane->work.notify_one();
  return ticket;
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

// After a cancel, the threads also fail. These failures are not kept.
void Faces::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped()) failure_ = std::move(failure);
  }
  cancel_links();
  finished_.notify_all();
}

void Faces::loop(Lane &lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    lane.work.wait(lock, [&] { return stopping_ || lane.jobs.count() > 0; });
    if (stopping_ || stopped()) return;
    const Job job = lane.jobs.front();
    lock.unlock();
    try {
      pump_.wait(job.after);
      if (lane.direction == 0)
        lane.link.send(job.rows);
      else
        lane.link.receive(job.rows);
    } catch (...) {
      return fail(std::current_exception());
    }
    bytes_[lane.direction] += job.rows.size();
    lock.lock();
    lane.jobs.pop();
    ++lane.finished;
    finished_.notify_all();
  }
}

}  // namespace outcrop
