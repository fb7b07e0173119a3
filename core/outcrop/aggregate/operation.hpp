// One write or read of a step, under way or over.
//
// begin (file.hpp) starts it and returns at once; copying inside a node and the aggregators' I/O go on beside the caller,
// messages between nodes in test() and wait(). All ranks begin the same operations in the same order, and all learn the
// same outcome: what failed at one aggregator is thrown on every rank.
#pragma once

#include <cstdint>
#include <memory>

namespace outcrop::aggregate {

class Engine;
class Step;

/// Seconds and bytes of this rank, since its begin.
struct Timing {
  double seconds = 0;           ///< until the outcome was known
  double seconds_copying = 0;   ///< at work on this rank's parts of buffers
  double seconds_filling = 0;   ///< copying, and waiting for room
  double seconds_storage = 0;   ///< of the I/O threads of this rank at work
  double seconds_messages = 0;  ///< in which messages were under way
  std::uint64_t bytes_storage = 0;
};

/// Movable. Destroying one that is under way waits for it and drops its outcome.
class Operation {
 public:
  Operation() = default;
  Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step);
  Operation(Operation &&) noexcept = default;
  Operation &operator=(Operation &&other) noexcept;
  ~Operation();

  /// Whether it is over. Throws as wait() does, once it is.
  bool test();
  /// Returns when it is over. Throws StorageError (naming rank, file and offset), InputError (memory that does not fit),
  /// CommunicationError; the same on all ranks.
  void wait();

  Timing timing() const;

 private:
  void abandon() noexcept;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Step> step_;
};

}  // namespace outcrop::aggregate
