// After an operation, all ranks learn its outcome. The leader of a node is the lowest rank on the node.
//
//     each rank                   its parts are done: arrive()      ─┐ a count in the node's shared memory
//     the last rank of the node   sets node_ready                   ─┘
//     the leaders                 send the first failure up a tree of leaders and down again, if there are several nodes
//     each leader                 sets settled, and notifies all ranks of its node
//
// The outcomes of a node are in eight slots, and a rank has at most four operations in progress. When the last rank of
// a node arrives in operation n, all ranks of the node have begun operation n. So they have all seen the outcome of
// operation n - 4, and the slot of operation n - 4 is free. The last rank clears this slot for operation n + 4.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "outcrop/aggregate/transport/transport.hpp"
#include "outcrop/base/error.hpp"

namespace outcrop::aggregate {

class Node;

/// The first error of an operation, in a form that shared memory and messages can hold.
struct Failure {
  enum Kind : std::int32_t { none, write, read, flush, open, create, input, corruption };

  Kind kind = none;
  std::int32_t rank = 0, error = 0;
  std::uint32_t padding = 0;
  std::uint64_t offset = 0, length = 0;
  char text[400] = {};  ///< for input and corruption errors, the message; for storage errors, the path of the file

  bool happened() const { return kind != none; }
  static Failure of(Kind kind, int rank, const std::string &text);
  static Failure of(Kind kind, int rank, const StorageError &error);
  static Failure of_input(int rank, const std::string &text) { return of(input, rank, text); }

  /// Throws the stored error as a StorageError, an InputError or a CorruptionError. Does nothing if no error is stored.
  void raise() const;
};

/// Runs act(). If act() throws an error that the system or the user can cause, returns this error. Does not catch other
/// exceptions, because they are bugs.
template <typename Act>
Failure attempt(Failure::Kind kind, int rank, Act &&act) {
  try {
    act();
  } catch (const StorageError &error) {
    return Failure::of(kind, rank, error);
  } catch (const InputError &error) {
    return Failure::of_input(rank, error.what());
  } catch (const CorruptionError &error) {
    return Failure::of(Failure::corruption, rank, error.what());
  } catch (const std::bad_alloc &) {
    return Failure::of_input(rank, "there is no memory left");
  } catch (const std::system_error &error) {  // std::filesystem and std::thread throw this error
    return Failure::of_input(rank, error.what());
  }
  return {};
}

constexpr std::uint64_t max_under_way = 4;
constexpr std::uint64_t outcome_slots = 2 * max_under_way;

/// The outcome of one operation, in the shared memory of a node. Memory that contains only zeros is a valid initial
/// state.
struct alignas(64) OutcomeSlot {
  std::atomic<std::uint32_t> arrived{0}, written{0}, claimed{0};
  // Each value is the number of an operation plus 1. `node_ready` is set when all ranks of the node have arrived, and
  // `settled` is set when the outcome is known.
  std::atomic<std::uint64_t> node_ready{0}, settled{0};
  Failure failure;
};

/// The outcome of one operation at one rank. Any thread may call the functions below, except for advance().
class Outcome {
 public:
  Outcome(Node &node, const Link &link, std::uint64_t operation);

  /// Records a failure of this rank. Only the first failure on a node is kept.
  void record(const Failure &failure);
  /// Each aggregator of this node calls this function when it has written its part. The last of the `writers` calls
  /// returns true.
  bool wrote(std::uint32_t writers);
  /// Each rank calls this function when all of its parts are done.
  void arrive();

  bool settled() const;
  /// Returns the outcome of the operation. The result is valid only after settled() has returned true.
  const Failure &failure() const;

  /// Continues the messages of a leader. Returns true when no messages are left. Only the thread that may use the
  /// transport calls this function. With several operations, the calls must follow the order in which the operations
  /// began.
  bool advance();
  bool sends() const { return phase_ != Phase::over; }

 private:
  enum class Phase { begin, up, down, sent, over };

  void settle();
  void post_receives();
  bool send_up();
  void send_down();

  Node &node_;
  const Link &link_;
  const std::uint64_t operation_;
  Phase phase_ = Phase::begin;
  std::vector<int> children_;  // the leaders directly below this leader in the tree
  int parent_ = -1;
  std::array<Failure, 2> from_children_{};
  Failure final_{};
  std::vector<outcrop_request> requests_;
};

}  // namespace outcrop::aggregate
