// Decides whether steps are staged on a tier of the nodes, or written directly to their target. It uses the model of cost.hpp.
//
//     straight   [ write to the target ] computing [ write to the target ] computing ...              [ read from it ]
//     staged     [ write to the tier ] computing [ wait ][ write to the tier ] computing ...   [ read from the tier ]
//                                      [ drained: tier ─► target ]
//
// A step costs the time that the program waits: for the write, for the part of the drain that takes longer than computing until
// the next step, and for reading back as often as the user expects. The drain reads from the tier and writes to the target, one
// after the other. Staging also takes work of the aggregator's thread, in addition to the tier's transfers: new pages, copies
// and checksums (StagingRates).
//
// A tier is possible if it is a file system of the nodes, has the requested persistence, and has room for a step. No tier is
// possible if the page cache does the same: the target is local to the node, and writes need not be durable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// How a program uses steps.
struct StepUsage {
  double seconds_between = 0;                  ///< computing time from the end of a write to the next write
  double reads_back = 0;                       ///< how often a step is soon read again by the same plan
  bool durable = false;                        ///< a write ends when its bytes are on the device
  Persistence persistence = Persistence::job;  ///< the minimum persistence of a stage
  std::uint64_t room_bytes = 0;                ///< the maximum bytes of a stage on a node; 0: all room of the tier
};

/// The rates of an aggregator's thread at the work of staging that is not a transfer from or to the tier. Measured on the
/// machine of docs/decisions.md by scripts/staged_beside_direct.py, on a stage in memory.
struct StagingRates {
  double write_bytes_per_second = 2.5e9;  ///< making pages and computing a checksum
  double read_bytes_per_second = 8e9;     ///< testing a checksum
};

/// The predicted seconds of a step.
struct StepForecast {
  double write = 0;
  double wait = 0;  ///< for the drain
  double read = 0;  ///< reading the step once
  double total(const StepUsage &usage) const { return write + wait + usage.reads_back * read; }
};

/// Staging on one tier. It is impossible if there is a `refusal`, which says why.
struct StageOption {
  std::uint32_t tier = 0;
  StepForecast forecast;
  double seconds_drain = 0;
  std::string refusal;
};

struct Staging {
  StepUsage usage;
  StepForecast straight;              ///< without a stage
  std::vector<StageOption> options;   ///< for each tier that is a file system
  std::optional<std::size_t> chosen;  ///< the index of the chosen option; none: no stage
};

/// Decides for the steps of a placement. The result is the same on all ranks.
Staging decide_staging(const Machine &machine, const Placement &placement, const StepUsage &usage,
                       const StagingRates &rates = {});

/// A text with a line for each option.
std::string explain(const Staging &staging, const Machine &machine);

}  // namespace outcrop::aggregate
