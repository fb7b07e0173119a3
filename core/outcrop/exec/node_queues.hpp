// Items in one order, each owned by a node, handed out to threads: to each those of its own node first.
//
//     order     0 1 2 3 4 5 6 7 8 9        a thread of node 0 takes 0 1 4 6 8, and then helps with what is left of
//     node 0    0 1     4   6   8          node 1's; with one node this is a counter
//     node 1        2 3   5   7   9
//
// When an item may wait for earlier ones of that order (tiles do), threads cannot block each other for ever, provided that every
// node that owns items has a thread. Assume that all threads wait, and let m be the first item that nobody has taken. What
// is before m has been taken, so of all taken items that are not finished the first, f, waits for something not taken: m or
// a later one, hence f > m, and everything before m is finished. A thread of m's node waits for an item as well. It took
// that from its own queue, since others are open to it only when its own is empty, and m is still there. Queues keep the
// order, so it took something before m, which is finished: a contradiction. So m is taken, and can run, sooner or later.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

namespace outcrop {

class NodeQueues {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// Item i belongs to node owners[i] < nodes.
  NodeQueues(unsigned nodes, const std::vector<unsigned> &owners)
      : nodes_(nodes), queues_(std::make_unique<Queue[]>(nodes)) {
    for (std::size_t i = 0; i < owners.size(); ++i) queues_[owners[i]].items.push_back(i);
  }

  /// All items can be taken again. While nobody takes any.
  void restart() {
    for (unsigned node = 0; node < nodes_; ++node) queues_[node].next.store(0, std::memory_order_relaxed);
  }

  /// The next item of that node, or of another one when there is none left; `none` when all have been taken.
  std::size_t take(unsigned node) {
    for (unsigned step = 0; step < nodes_; ++step)
      if (const std::size_t item = take_own((node + step) % nodes_); item != none) return item;
    return none;
  }

  /// The next item of that node alone.
  std::size_t take_own(unsigned node) {
    Queue &queue = queues_[node];
    if (queue.next.load(std::memory_order_relaxed) >= queue.items.size()) return none;
    const std::size_t place = queue.next.fetch_add(1, std::memory_order_relaxed);
    return place < queue.items.size() ? queue.items[place] : none;
  }

 private:
  struct alignas(64) Queue {
    std::atomic<std::size_t> next{0};
    std::vector<std::size_t> items;
  };

  unsigned nodes_;
  std::unique_ptr<Queue[]> queues_;
};

}  // namespace outcrop
