#include "outcrop/aggregate/operation.hpp"

#include <cassert>
#include <utility>

#include "outcrop/aggregate/steps/step.hpp"

namespace outcrop::aggregate {

Operation::Operation(std::shared_ptr<Engine> engine, std::shared_ptr<Step> step)
    : engine_(std::move(engine)), step_(std::move(step)) {}

Operation &Operation::operator=(Operation &&other) noexcept {
  if (this == &other) return *this;
  abandon();
  engine_ = std::move(other.engine_);
  step_ = std::move(other.step_);
  return *this;
}

Operation::~Operation() { abandon(); }

void Operation::abandon() noexcept {
  try {
    if (step_) step_->settle();
  } catch (const std::exception &) {  // nobody is there to be told
  }
  step_.reset();
  engine_.reset();
}

bool Operation::test() {
  assert(step_);
  return step_->test();
}

void Operation::wait() {
  assert(step_);
  step_->wait();
}

Timing Operation::timing() const {
  assert(step_);
  return step_->timing();
}

}  // namespace outcrop::aggregate
