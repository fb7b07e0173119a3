// Faces are rows of a plane at the cut between the parts of two ranks. A rank sends the faces that its neighbour needs,
// and receives the faces that its own updates need. The rows are sent from slots of the window and received into slots
// of the window, without another copy:
//
//     rank j + 1   |  halo  |  own rows: first rows ...          side 0: the neighbour with lower rows
//                      ▲         │
//                      │         ▼
//     rank j       ... last rows |  halo  |                      side 1: the neighbour with higher rows
//
// Each link has two threads: one thread sends, and the other thread receives. Each of the two threads takes jobs from
// its own bounded queue. The jobs are in the order in which the plan lists them. The plans of two neighbouring ranks
// list the faces of their common link in the same order. A job can depend on a request of the I/O thread (pump.hpp).
// Such a job begins as soon as the request of the I/O thread is complete. Therefore rows are sent as soon as they are
// read from storage, while the executor updates other planes. A thread transfers several short jobs with one system
// call, and reports each job when this job is finished.
//
// If the grid is divided in both y and z, a rank also sends whole planes. Side 2 is the neighbour with lower planes,
// and side 3 is the neighbour with higher planes.
//
// In split tiling, a rank sends rows of each level while it updates a plane ("stairs"). It also sends rows of the last
// level ("finished"). Therefore several faces of one slot can be in transfer at the same time. For each slot, the class
// SlotFaces stores which rows are in transfer. A thread that uses other rows of the slot does not wait.
//
// The first failure stops all jobs and cancels all links, so that the neighbouring ranks also stop. Each thread that
// waits for a job throws the first failure.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "outcrop/storage/link.hpp"
#include "outcrop/storage/pump.hpp"
#include "outcrop/storage/store.hpp"

namespace outcrop {

constexpr std::size_t side_count = 4;

/// The links of a rank to four neighbours: the neighbours with lower rows, with higher rows, with lower planes and with
/// higher planes. An element is null if the rank has no neighbour on this side.
using Links = std::array<Link *, side_count>;

/// Runs the threads that send and receive faces. `links` and `pump` must exist longer than this object.
class Faces {
 public:
  /// Starts the threads. Each queue has room for `capacity` jobs. send() and receive() wait while their queue is full.
  Faces(const Links &links, Pump &pump, std::size_t capacity);

  /// Ends the threads. If some jobs are not finished, the destructor cancels the links first.
  ~Faces();

  /// The rows of a message. The job begins only after the request `after` of the I/O thread is complete. The memory of
  /// the rows must stay valid until the job is finished, or until the Faces object is destroyed.
  struct Job {
    std::span<std::byte> rows;
    Ticket after = no_ticket;
  };

  /// send() and receive() add jobs to a queue, and return the number of the first of these jobs. The other jobs of the
  /// call have the following numbers. Each side and each direction has its own sequence of numbers. If an earlier job
  /// has failed, send() and receive() throw the first failure. After cancel(), they throw Cancelled. send() and
  /// receive() throw InputError if the rank has no neighbour on this side.
  Ticket send(std::size_t side, std::span<const Job> jobs) { return submit(0, side, jobs); }
  Ticket receive(std::size_t side, std::span<const Job> jobs) { return submit(1, side, jobs); }

  /// wait_until_sent() and wait_until_received() wait until a job is finished. For the ticket `no_ticket`, both
  /// functions return immediately.
  void wait_until_sent(std::size_t side, Ticket ticket) { wait(0, side, ticket); }
  void wait_until_received(std::size_t side, Ticket ticket) { wait(1, side, ticket); }

  /// Waits until all jobs on all sides are finished.
  void drain();

  /// Cancels the links. After cancel(), all threads that wait in functions of this object throw Cancelled.
  void cancel();

  /// bytes_sent() and bytes_received() return the number of bytes in all finished jobs.
  std::uint64_t bytes_sent() const { return bytes_[0]; }
  std::uint64_t bytes_received() const { return bytes_[1]; }

 private:
  // The jobs of one link in one of its directions. In direction 0, the rank sends rows. In direction 1, the rank
  // receives rows.
  struct Lane {
    Lane(Link &link_, std::size_t direction_, std::size_t capacity)
        : link(link_), direction(direction_), jobs(capacity) {}

    Link &link;
    const std::size_t direction;
    BoundedQueue<Job> jobs;  // the jobs in the order of the plan; some jobs at the front may be in transfer
    Ticket submitted = no_ticket, finished = no_ticket;
    std::condition_variable work;
    std::thread thread;
  };

  Ticket submit(std::size_t direction, std::size_t side, std::span<const Job> jobs);
  void wait(std::size_t direction, std::size_t side, Ticket ticket);
  void loop(Lane &lane);
  std::size_t gather(const Lane &lane, std::span<std::span<std::byte>> batch) const;
  void finish(Lane &lane, std::size_t count);
  void fail(std::exception_ptr failure);
  void stop();
  void cancel_links() const;
  bool stopped() const { return cancelled_ || failure_ != nullptr; }
  void throw_if_stopped() const;

  const Links links_;
  Pump &pump_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::deque<Lane> lanes_;
  std::array<std::array<Lane *, side_count>, 2> lane_of_{};  // indices: direction, side
  bool stopping_ = false, cancelled_ = false;
  std::exception_ptr failure_;  // the failure that stopped the jobs, or null
  std::array<std::atomic<std::uint64_t>, 2> bytes_{};
};

/// The faces of one slot that are being sent or received. Only one thread may use a SlotFaces object.
class SlotFaces {
 public:
  /// add_sent() and add_received() record that job `ticket` of this side sends or receives the rows y0 <= y < y1.
  void add_sent(std::size_t side, long y0, long y1, Ticket ticket) { sending_.push_back({side, y0, y1, ticket}); }
  void add_received(std::size_t side, long y0, long y1, Ticket ticket) { receiving_.push_back({side, y0, y1, ticket}); }

  /// wait_until_sent() and wait_until_received() wait for all jobs that transfer at least one of the rows y0 <= y < y1.
  void wait_until_sent(Faces &faces, long y0, long y1);
  void wait_until_received(Faces &faces, long y0, long y1);

  /// Waits until all jobs of the slot are finished.
  void wait(Faces &faces);

  /// These two functions return false if a wait for the same rows would certainly return immediately.
  bool may_wait_until_sent(long y0, long y1) const { return transfers(sending_, y0, y1); }
  bool may_wait_until_received(long y0, long y1) const { return transfers(receiving_, y0, y1); }
  bool may_wait() const { return !sending_.empty() || !receiving_.empty(); }

  /// Removes all jobs of the slot from the list. Before the call, all jobs of the slot must be finished.
  void clear() {
    sending_.clear();
    receiving_.clear();
  }

 private:
  struct Rows {
    std::size_t side;
    long y0, y1;
    Ticket ticket;
  };

  static bool transfers(const std::vector<Rows> &jobs, long y0, long y1) {
    return std::ranges::any_of(jobs, [&](const Rows &job) { return job.y0 < y1 && y0 < job.y1; });
  }
  template <typename Wait>
  static void wait_for(std::vector<Rows> &jobs, long y0, long y1, const Wait &wait);

  std::vector<Rows> sending_, receiving_;  // the jobs that may not be finished yet
};

}  // namespace outcrop
