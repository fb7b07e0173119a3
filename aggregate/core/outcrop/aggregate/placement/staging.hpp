// Is a step better staged on a tier of the nodes, or written straight to its target? A decision, by the model of cost.hpp.
//
//     straight   [ write to the target ] computing [ write to the target ] computing ...              [ read from it ]
//     staged     [ write to the tier ] computing [ wait ][ write to the tier ] computing ...   [ read from the tier ]
//                                      [ drained: tier ─► target ]
//
// A step costs what the program waits for: writing, what of the drain takes longer than computing until the next step, and
// reading back as often as the user says. The drain reads a tier and writes the target, one after the other. Staging is
// work for the thread of an aggregator, too, beside the tier's: new pages, copies, checksums (StagingRates).
//
// A tier is offered that is a file system of the nodes, keeps what is there as long as asked, and has room for a step.
// Nothing is offered where the page cache does the same: for a target of the node, when writes need not be durable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// How steps are used. Unset fields are 0.
struct StepUsage {
  double seconds_between = 0;                  ///< of computing, from the end of a write to the next one
  double reads_back = 0;                       ///< how often a step is read again, by the same plan, before long
  bool durable = false;                        ///< writes end with their bytes on the device
  Persistence persistence = Persistence::job;  ///< of a stage, at least
  std::uint64_t room_bytes = 0;                ///< that it may take of a node; 0: all of the tier's room
};

/// What the thread of an aggregator gets through, in a second, of what staging takes besides moving bytes to the tier and
/// from it. Measured on the machine of ARCHITECTURE.md by scripts/staged_beside_direct.py, on a stage in memory.
struct StagingRates {
  double write_bytes_per_second = 2.5e9;  ///< pages made, a checksum taken
  double read_bytes_per_second = 8e9;     ///< a checksum tested
};

/// Seconds of a step.
struct StepForecast {
  double write = 0;
  double wait = 0;  ///< for the drain
  double read = 0;  ///< once
  double total(const StepUsage &usage) const { return write + wait + usage.reads_back * read; }
};

/// Staging on one tier; not possible for the `refusal`, if there is one.
struct StageOption {
  std::uint32_t tier = 0;
  StepForecast forecast;
  double seconds_drain = 0;
  std::string refusal;
};

struct Staging {
  StepUsage usage;
  StepForecast straight;
  std::vector<StageOption> options;   ///< of all tiers that are file systems
  std::optional<std::size_t> chosen;  ///< of the options; none: straight
};

/// For the steps of a placement. The same on all ranks.
Staging decide_staging(const Machine &machine, const Placement &placement, const StepUsage &usage,
                       const StagingRates &rates = {});

/// In words, a line for each way.
std::string explain(const Staging &staging, const Machine &machine);

}  // namespace outcrop::aggregate
