// How all ranks learn how an operation ended.
//
//     each rank       its parts are done: arrive()        ─┐ shared memory of the node: a count
//     the last here   node_ready                          ─┘
//     nodes' leaders  what failed, up a tree of leaders and down again, by messages if there are several nodes
//     leader          settled; rings all ranks of its node
//
// There are eight slots, and at most four operations are under way at a rank, counted from the oldest that is not over. So
// the last rank to arrive in operation n knows that all ranks here have begun n, and hence have seen the outcome of n - 4.
// It clears that slot, which operation n + 4 will use.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "outcrop/aggregate/transport/link.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

class Node;

/// The first error of an operation, in a form that can lie in shared memory and be sent.
struct Failure {
  enum Doing : std::int32_t { nothing, write, read, flush, open, create, input, corruption };

  Doing doing = nothing;
  std::int32_t rank = 0, error = 0;
  std::uint32_t padding = 0;
  std::uint64_t offset = 0, length = 0;
  char text[400] = {};  ///< the message of input and corruption errors; the path of storage errors

  bool happened() const { return doing != nothing; }
  static Failure of(Doing doing, int rank, const StorageError &error);
  static Failure of_input(int rank, const std::string &text);
  static Failure of_corruption(int rank, const std::string &text);

  /// Throws StorageError, InputError or CorruptionError if it happened.
  void raise() const;
};

/// Runs act() and returns the environmental error it throws, if any. Bugs (other exceptions) pass through.
template <typename Act>
Failure attempt(Failure::Doing doing, int rank, Act &&act) {
  try {
    act();
  } catch (const StorageError &error) {
    return Failure::of(doing, rank, error);
  } catch (const InputError &error) {
    return Failure::of_input(rank, error.what());
  } catch (const CorruptionError &error) {
    return Failure::of_corruption(rank, error.what());
  } catch (const std::bad_alloc &) {
    return Failure::of_input(rank, "there is no memory left");
  } catch (const std::system_error &error) {  // of the standard library: file systems, threads
    return Failure::of_input(rank, error.what());
  }
  return {};
}

constexpr std::uint64_t max_under_way = 4;
constexpr std::uint64_t outcome_slots = 2 * max_under_way;

/// How one operation ended for the ranks of a node, in their shared memory. All bytes zero is the first state.
struct alignas(64) OutcomeSlot {
  std::atomic<std::uint32_t> arrived{0}, written{0}, claimed{0};
  std::atomic<std::uint64_t> node_ready{0}, settled{0};  // number of the operation + 1
  Failure failure;
};

/// The outcome of one operation at one rank. All functions but advance() may be called from any thread.
class Outcome {
 public:
  Outcome(Node &node, const Link &link, std::uint64_t operation);

  /// Records a failure in this rank's part. Only the first on a node is kept.
  void record(const Failure &failure);
  /// An aggregator of this node has written its part. True for the last of `writers`.
  bool wrote(std::uint32_t writers);
  /// This rank has done all of its parts.
  void arrive();

  bool settled() const;
  /// Valid once settled.
  const Failure &failure() const;

  /// Moves on a leader's messages; true when nothing is left to be sent. Called in the order of operations, by the thread
  /// that may use the link.
  bool advance();
  bool sends() const { return phase_ != Phase::over; }

 private:
  enum class Phase { begin, up, down, told, over };

  void settle();
  void post_receives();
  bool send_up();
  void send_down();

  Node &node_;
  const Link &link_;
  const std::uint64_t operation_;
  Phase phase_ = Phase::begin;
  std::vector<int> children_;  // leaders below this one in the tree
  int parent_ = -1;
  std::array<Failure, 2> from_children_{};
  Failure final_{};
  std::vector<outcrop_request> requests_;
};

}  // namespace outcrop::aggregate
