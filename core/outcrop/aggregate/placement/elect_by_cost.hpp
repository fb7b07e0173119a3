// Aggregators by what they cost: placement, as a plan asks for it.
#pragma once

#include <memory>

#include "outcrop/aggregate/decision/elect.hpp"
#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// A placement, with what is needed to explain it.
struct Placed {
  Machine machine;
  Wishes wishes;
  Placement placement;
};

/// Places by `placed`'s machine and wishes, but for the buffers, which are the plan's, and keeps there what was decided.
/// With `exactly`, all domains of the ballot; otherwise as many as are done soonest. Ranks of a node send together where that
/// is sooner.
Elect elect_by_cost(std::shared_ptr<Placed> placed, bool exactly);

}  // namespace outcrop::aggregate
