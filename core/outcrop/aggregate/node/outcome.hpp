// How all ranks learn how an operation ended.
//
//     each rank       its parts are done: arrive()        ─┐ shared memory of the node: a count
//     the last here   node_ready                          ─┘
//     nodes' leaders  what failed, up a tree of leaders, and down again: messages, only where there are several nodes
//     leader          settled; rings all ranks of its node
//
// There are eight slots, and at most four operations are under way at a rank, from the oldest that is not over. So who is the
// last to arrive in operation n knows that all ranks here have begun n, hence seen the outcome of n - 4: it clears that
// slot, which operation n + 4 will use.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "outcrop/aggregate/node/node.hpp"

namespace outcrop::aggregate {

/// Of one rank for one operation. All functions but advance() may be called from any thread.
class Outcome {
 public:
  Outcome(Node &node, const Link &link, std::uint64_t operation);

  /// What failed in this rank's part; only the first on a node is kept.
  void record(const Failure &failure);
  /// An aggregator of this node has written its part; true for the last of `writers`.
  bool wrote(std::uint32_t writers);
  /// This rank has done all of its parts.
  void arrive();

  bool settled() const { return node_.outcome(operation_).settled.load() == operation_ + 1; }
  /// Once settled.
  const Failure &failure() const { return node_.outcome(operation_).failure; }

  /// A leader's messages; true when nothing is left to be sent. In the order of operations, by the thread that may use the link.
  bool advance();
  bool sends() const { return stage_ != Stage::over; }

 private:
  enum class Stage { begin, up, down, told, over };

  void settle();
  void post_receives();
  bool send_up();
  void send_down();

  Node &node_;
  const Link &link_;
  const std::uint64_t operation_;
  Stage stage_ = Stage::begin;
  std::vector<int> children_;  // leaders below this one in the tree
  int parent_ = -1;
  std::array<Failure, 2> from_children_{};
  Failure final_{};
  std::vector<outcrop_request> requests_;
};

}  // namespace outcrop::aggregate
