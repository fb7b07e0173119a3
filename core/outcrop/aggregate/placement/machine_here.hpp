// The machine that the ranks run on, as placement knows it, for programs in C and Fortran (Python has at_hand.py): from the
// machine file, or with memory that has been measured for a moment.
//
//     first rank of each node: file, or memory measured ─► what cannot be used here ─┐
//     rank 0: what is assumed of the target                                          ├─► texts of all nodes, on all ranks
//                                                                                    ┘   ─► Machine, the same everywhere
#pragma once

#include <string>
#include <vector>

#include "outcrop/aggregate/node/medium.hpp"
#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/aggregate/transport/link.hpp"

namespace outcrop::aggregate {

struct MachineHere {
  Machine machine;
  std::vector<Medium> media;       ///< of each tier, on this rank's node
  std::vector<std::string> hosts;  ///< of each node
  std::vector<std::string> lines;  ///< where figures are from, and what cannot be used
};

/// Collective. Throws InputError, on all ranks, where the files that settings name cannot be read or are none.
MachineHere find_machine(const Link &link, const Settings &settings);

}  // namespace outcrop::aggregate
