// The instructions of a plan, as the executor sees them. Python's plan/actions.py is the same list with its meaning
// spelled out; the validator there proves a list legal before it comes here.
#pragma once

#include <variant>
#include <vector>

namespace outcrop {

/// Start reading level 0 of planes z0 <= z < z1 into the even ring.
struct ReadAction {
  long z0, z1;
};

/// Copy the rim of level 0 of planes z0 <= z < z1 from the even to the odd ring.
struct CopyAction {
  long z0, z1;
};

/// Update levels 1 .. levels of the slab zeta0 <= zeta < zeta1.
struct UpdateAction {
  long zeta0, zeta1, levels;
};

/// Start writing planes z0 <= z < z1, which are at `level`, to the target.
struct WriteAction {
  long z0, z1, level;
};

/// Wait for all transfers and flush the target to its device.
struct CommitAction {};

using Action = std::variant<ReadAction, CopyAction, UpdateAction, WriteAction, CommitAction>;
using Actions = std::vector<Action>;

}  // namespace outcrop
