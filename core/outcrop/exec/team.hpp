// Defines a team of threads. A team runs one job at a time. This file also divides the window and the work among NUMA
// nodes.
//
// The team does not use OpenMP. The threads take the tiles of a slab one by one. A thread waits only for the tiles that
// its own tile needs (tiles.hpp). Therefore the threads need no parallel loop, and no barrier inside a slab. If a slab
// is divided into ranges of columns (traverse.hpp), each range is a job. In this case, the threads wait for each other
// after each range. The thread sanitizer knows every synchronisation of the team. It does not know the synchronisation
// inside OpenMP. After a job, the threads spin for a short time, because the next job usually follows within
// microseconds. If no job follows soon, the threads sleep.
//
// The threads of a team are its members. If ThreadPlacement::bound is true, each member is bound to a processor. The
// thread that calls run() is member 0 of the team. Member 0 is bound only while the result of bind_caller() exists. If
// member 0 were always bound, all threads that it starts would inherit the binding.
//
// On several NUMA nodes, each node owns a part of every slot of the window. The memory of a part is memory of the node
// that owns the part. The threads of a node first take the tiles whose rows are in the node's part. The sizes of the
// parts are proportional to the numbers of threads of the nodes. The owner of a row depends only on the place of the
// row in its slot:
//
//     slot of plane z:    | node 0         | node 1         |
//     slot of plane z+1:  | node 0         | node 1         |
//                           rows of the frame
//
// The memory of each part is bound to the node that owns the part. But containers often forbid this binding. Therefore
// a thread of the node also touches each page of the part first. The system then takes the page from the memory of this
// node.
//
// The pages of the window are huge pages (2 MiB), because small pages make every access slower. A page belongs to one
// node. Therefore parts begin at multiples of 2 MiB. This rule moves each edge of a part by up to 1 MiB. If the parts
// are smaller than a huge page, the pages come from all nodes in turn. Then nodes own tiles, but no parts of the
// memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "outcrop/exec/topology.hpp"
#include "outcrop/exec/window.hpp"

namespace outcrop {

/// Tells the processor that the calling thread is in a waiting loop.
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

  /// Starts the threads of the placement. The calling thread is member 0. Therefore the constructor starts only the
  /// threads of the other members. Throws InputError if the system cannot start so many threads.
  explicit Team(ThreadPlacement placement);
  explicit Team(unsigned size) : Team(unbound(size)) {}
  ~Team();

  unsigned size() const { return placement_.size(); }
  const ThreadPlacement &placement() const { return placement_; }
  unsigned node_of(unsigned member) const { return placement_.threads[member].node; }

  /// Binds the calling thread to the processor of member 0 until the returned object is destroyed.
  [[nodiscard]] BoundThread bind_caller() const { return BoundThread(placement_.processor(0)); }

  /// Runs job(0), job(1), ... job(size - 1) at the same time. Each member of the team runs one of them. Returns when
  /// all jobs have returned. Jobs must not throw.
  void run(const Job &job);

  /// Runs body(i) for each i with 0 <= i < count. Each thread takes one index after the other.
  void for_each(long count, const std::function<void(long)> &body);

  /// Writes zeros to `size` bytes. The pages of these bytes then become resident. The bytes are divided into pieces of
  /// the size of a huge page. The threads take these pieces one by one.
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

/// An ordered list of items. The threads of a team take the items one by one. Each item belongs to a node. A thread
/// first takes the items of its own node:
///
///     order     0 1 2 3 4 5 6 7 8 9
///     node 0    0 1     4   6   8
///     node 1        2 3   5   7   9
///
/// In the drawing, a thread of node 0 first takes the items 0, 1, 4, 6 and 8. After these items, this thread takes the
/// remaining items of node 1. If there is only one node, all threads take the items in ascending order.
///
/// An item can need earlier items. For example, a tile needs other tiles. A thread that has taken an item waits until
/// the items that this item needs are finished. If every node that owns items has a thread, the threads cannot block
/// each other forever. Proof: assume that all threads wait. In the order of the items, let m be the first item that no
/// thread has taken. Let f be the first item that a thread has taken but not finished. All taken items before f are
/// finished, so f needs an item that no thread has taken. The needed item comes before f. It is m, or an item after m.
/// Therefore m comes before f, and all items before m are finished. Let T be a thread of the node that owns m, and let
/// t be the item that T has taken but not finished. The queue of the node still contains m. A thread takes items of
/// other nodes only if the queue of its own node is empty. Therefore T took t from the queue of its own node. A queue
/// keeps the order of its items. Therefore t comes before m, and is finished. But T has not finished t. This
/// contradiction shows that the threads cannot all wait.
class NodeQueues {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// Makes the queues of `nodes` nodes. Item i belongs to the node owners[i]. Each element of `owners` must be less
  /// than `nodes`.
  NodeQueues(unsigned nodes, const std::vector<unsigned> &owners)
      : nodes_(nodes), queues_(std::make_unique<NodeQueue[]>(nodes)) {
    for (std::size_t i = 0; i < owners.size(); ++i) queues_[owners[i]].items.push_back(i);
  }

  /// Makes all items available again. While restart() runs, no thread may call take() or take_own().
  void restart() {
    for (unsigned node = 0; node < nodes_; ++node) queues_[node].next.store(0, std::memory_order_relaxed);
  }

  /// Returns the next item of the node `node`. If this node has no items left, returns an item of another node. If no
  /// node has items left, returns `none`.
  std::size_t take(unsigned node) {
    for (unsigned step = 0; step < nodes_; ++step)
      if (const std::size_t item = take_own((node + step) % nodes_); item != none) return item;
    return none;
  }

  /// Returns the next item of the node `node`. If this node has no items left, returns `none`.
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

/// Divides `total` into parts that are proportional to the weights. Returns the beginning of each part. The last
/// element of the result is `total`.
std::vector<std::size_t> cut_in_proportion(std::size_t total, const std::vector<unsigned> &weights);

/// Returns, for each node, the first row that the node owns in the current frame of the window. The last element of the
/// result is the end of the frame.
std::vector<long> first_rows(const Window &window, const std::vector<unsigned> &node_threads);

/// Returns the node that owns the row `row`. If the row is outside the frame, it belongs to the nearest node.
unsigned owner_of(long row, const std::vector<long> &first_rows);

/// Returns the rows at which the diagonals of diamond_tiles() begin. The diagonals begin at every second edge between
/// two parts of nodes. Each part therefore has diagonals that begin at one of its two edges, and nodes rarely wait for
/// each other. If there is only one node, the result is row 0.
std::vector<long> rows_to_begin_at(const std::vector<long> &first_rows);

/// A part of the window's memory, and the node that should provide this memory.
struct MemoryPart {
  std::byte *data = nullptr;
  std::size_t size = 0;
  unsigned node = 0;

  bool operator==(const MemoryPart &) const = default;
};

/// Divides the window into parts, in ascending order. Each part belongs to a node. If a part would be smaller than a
/// huge page, returns an empty list.
std::vector<MemoryPart> memory_parts(const Window &window, const std::vector<unsigned> &node_threads);

/// Makes all pages of a window resident. Each page is in memory near the threads that use it. Before this call, no
/// thread may touch a page of the window.
void place_memory(const Window &window, Team &team);

}  // namespace outcrop
