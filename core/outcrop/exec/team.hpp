// A team of threads that run one job at a time, and the parts of the window and of the work that belong to their NUMA nodes.
//
// The team is not OpenMP, because the tiles of a slab are handed out by tickets and wait only for their own predecessors
// (tiles.hpp). There is no loop to share out and no barrier inside a slab, and the thread sanitizer sees every
// synchronisation. Between jobs members spin for a moment (slabs follow each other within microseconds), then sleep.
//
// Members are bound to processors if their placement says so. The caller is member 0. It is bound only while it holds the
// result of bind_caller(), because threads that it starts later would inherit the binding.
//
// On several NUMA nodes each node owns a part of every slot of the window. The memory of that part comes from the node, and
// the node's threads first take the tiles of the rows that lie in it:
//
//     slot of plane z:    | node 0         | node 1         |      in proportion to the threads of the nodes
//     slot of plane z+1:  | node 0         | node 1         |
//                           rows of the frame; the owner depends only on where in its slot a row lies
//
// Memory is placed in two ways, because containers often forbid the first: each part is bound to its node, and then a thread
// of the node is the first to touch its pages, which makes the system take them from that node.
//
// A page has one node, and the window's pages are huge (2 MiB), so parts begin at multiples of 2 MiB. At its edges a part then
// loses or gains up to 1 MiB. That costs less than small pages, which would make every access slower. Parts smaller than a
// huge page are not worth it: pages are then taken from all nodes in turn, and only the tiles stay with their nodes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "outcrop/exec/topology.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// Tells the processor that this is a waiting loop.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Team {
 public:
  using Job = std::function<void(unsigned member)>;

  /// Starts all threads of the placement but the first, which is the caller. Throws InputError if the system does not allow so
  /// many.
  explicit Team(ThreadPlacement placement);
  explicit Team(unsigned size) : Team(unbound(size)) {}
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  unsigned size() const { return placement_.size(); }
  const ThreadPlacement &placement() const { return placement_; }
  unsigned node_of(unsigned member) const { return placement_.threads[member].node; }

  /// Binds the calling thread to the processor of member 0 while the result lives.
  [[nodiscard]] BoundThread bind_caller() const { return BoundThread(placement_.processor(0)); }

  /// Runs job(0) .. job(size-1) at once and returns when all have returned. Jobs must not throw.
  void run(const Job &job);

  /// Runs body(i) for 0 <= i < count, indices handed out one at a time.
  void for_each(long count, const std::function<void(long)> &body);

  /// Writes zeros over `size` bytes in parts of a huge page, so that they are resident and near the threads that use them.
  void touch(std::byte *data, std::size_t size);

 private:
  void serve(unsigned member);
  void stop();

  const ThreadPlacement placement_;
  std::vector<std::thread> threads_;
  const Job *job_ = nullptr;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<bool> stopping_{false};
};

/// Keeps the first exception of a team's job, whose members must not throw.
class FirstFailure {
 public:
  /// Calls `work`, unless a call has failed already.
  template <typename Work>
  void guard(const Work &work) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_) first_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  /// Throws the exception again, if there was one. After the job.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> failed_{false};
};

/// Items in one order, each owned by a node, handed out to threads. A thread first gets the items of its own node:
///
///     order     0 1 2 3 4 5 6 7 8 9        a thread of node 0 takes 0 1 4 6 8, and then helps with the rest of
///     node 0    0 1     4   6   8          node 1's items; with one node this is a counter
///     node 1        2 3   5   7   9
///
/// An item may wait for earlier ones of the order, as tiles do. Threads cannot block each other for ever, provided that every
/// node that owns items has a thread. Proof: assume that all threads wait, and let m be the first item that is not taken. All
/// items before m are taken, so of all taken items that are not finished the first, f, waits for an item that is not taken: m
/// or a later one. Hence f > m, and everything before m is finished. A thread of m's node waits in some item as well. It took
/// that item from its own queue, since it takes from others only when its own is empty, and m is still there. Queues keep the
/// order, so it took an item before m, which is finished: a contradiction.
class NodeQueues {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// Item i belongs to node owners[i] < nodes.
  NodeQueues(unsigned nodes, const std::vector<unsigned> &owners)
      : nodes_(nodes), queues_(std::make_unique<NodeQueue[]>(nodes)) {
    for (std::size_t i = 0; i < owners.size(); ++i) queues_[owners[i]].items.push_back(i);
  }

  /// Makes all items available again. No thread may take items meanwhile.
  void restart() {
    for (unsigned node = 0; node < nodes_; ++node) queues_[node].next.store(0, std::memory_order_relaxed);
  }

  /// The next item of that node, or of another one if it has none left; `none` when all have been taken.
  std::size_t take(unsigned node) {
    for (unsigned step = 0; step < nodes_; ++step)
      if (const std::size_t item = take_own((node + step) % nodes_); item != none) return item;
    return none;
  }

  /// The next item of that node alone.
  std::size_t take_own(unsigned node) {
    NodeQueue &queue = queues_[node];
    if (queue.next.load(std::memory_order_relaxed) >= queue.items.size()) return none;
    const std::size_t place = queue.next.fetch_add(1, std::memory_order_relaxed);
    return place < queue.items.size() ? queue.items[place] : none;
  }

 private:
  struct alignas(64) NodeQueue {
    std::atomic<std::size_t> next{0};
    std::vector<std::size_t> items;
  };

  unsigned nodes_;
  std::unique_ptr<NodeQueue[]> queues_;
};

/// Where the parts begin when `total` is divided in proportion to the weights: one more number than weights, 0 to `total`.
std::vector<std::size_t> cut_in_proportion(std::size_t total, const std::vector<unsigned> &weights);

/// Where the rows of each node begin in the present frame of the window: one more row than nodes, the first and the last being
/// those of the frame.
std::vector<long> first_rows(const Window &window, const std::vector<unsigned> &node_threads);

/// The node that owns a row; rows outside the frame belong to the nearest.
unsigned owner_of(long row, const std::vector<long> &first_rows);

/// The rows at which diamond_tiles() begins, so that nodes do not wait for each other: every second edge between parts. Each
/// part then has one. With one node this is row 0 for any frame.
std::vector<long> rows_to_begin_at(const std::vector<long> &first_rows);

/// A part of the window's memory, and the node it is to come from.
struct MemoryPart {
  std::byte *data = nullptr;
  std::size_t size = 0;
  unsigned node = 0;

  bool operator==(const MemoryPart &) const = default;
};

/// The whole window divided into the parts of nodes, in ascending order; empty if parts would be too small.
std::vector<MemoryPart> memory_parts(const Window &window, const std::vector<unsigned> &node_threads);

/// Makes every byte of a window resident, near the threads of the team that will use it. The window must be untouched.
void place_memory(const Window &window, Team &team);

}  // namespace outcrop
