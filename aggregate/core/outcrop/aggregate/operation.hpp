// One write or read of a step, under way or over.
//
// begin (file.hpp) starts it and returns at once; copying inside a node and the aggregators' I/O go on beside the caller,
// messages between nodes in test() and wait(). All ranks begin the same operations in the same order, and all learn the
// same outcome: what failed at one aggregator is thrown on every rank.
#pragma once

#include <memory>

#include "outcrop/aggregate/steps/step.hpp"

namespace outcrop::aggregate {

class Engine;
class Step;

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
