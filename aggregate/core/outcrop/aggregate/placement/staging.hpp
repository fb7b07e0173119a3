// Decides whether steps are staged on a tier of the nodes, or written directly to the target. The decision uses the
// model of cost.hpp.
//
//     straight   [ write to the target ] computing [ write to the target ] computing ...              [ read from it ]
//     staged     [ write to the tier ] computing [ wait ][ write to the tier ] computing ...   [ read from the tier ]
//                                      [ drained: tier ─► target ]
//
// The cost of a step is the time for which the program waits. The program waits for the write. If the drain takes
// longer than the computing between two steps, the program waits for the rest of the drain. The program also waits for
// each read of the step. The drain alternates between reading from the tier and writing to the target. With staging,
// the thread of an aggregator also allocates pages and computes checksums (StagingRates).
//
// A tier can be used if it is a file system of the nodes, has the requested persistence, and has room for a step. If
// the target is local to the node and writes need not be durable, no tier is used, because the page cache has the same
// effect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// How a program is expected to use its steps.
struct StepUsage {
  double seconds_between = 0;  ///< computing time from the end of a write to the next write
  /// how often the program is expected to read a step back soon after the write, with the same plan
  double reads_back = 0;
  bool durable = false;                        ///< true if a write ends only when its bytes are on the device
  Persistence persistence = Persistence::job;  ///< the minimum persistence of a stage
  std::uint64_t room_bytes = 0;                ///< the maximum size of a stage on a node; 0: all room of the tier
};

/// The rates at which an aggregator's thread performs the additional work of staging, without the transfers from or to
/// the tier. scripts/staged_beside_direct.py has measured these rates on the machine of docs/decisions.md, with a stage
/// in memory.
struct StagingRates {
  double write_bytes_per_second = 2.5e9;  ///< the rate of allocating pages and computing a checksum
  double read_bytes_per_second = 8e9;     ///< the rate of testing a checksum
};

/// The predicted seconds of a step.
struct StepForecast {
  double write = 0;
  double wait = 0;  ///< for the drain
  double read = 0;  ///< the time for reading the step back once
  double total(const StepUsage &usage) const { return write + wait + usage.reads_back * read; }
};

/// The cost of staging on one tier. If the tier cannot be used, `refusal` gives the reason.
struct StageOption {
  std::uint32_t tier = 0;
  StepForecast forecast;
  double seconds_drain = 0;
  std::string refusal;
};

struct Staging {
  StepUsage usage;
  StepForecast straight;              ///< without a stage
  std::vector<StageOption> options;   ///< the cost of staging on each tier that is a file system
  std::optional<std::size_t> chosen;  ///< index in `options`; no value: steps are not staged
};

/// Decides whether the steps of a placement are staged. The result is the same on all ranks.
Staging decide_staging(const Machine &machine, const Placement &placement, const StepUsage &usage,
                       const StagingRates &rates = {});

/// Returns a text with one line for each option.
std::string explain(const Staging &staging, const Machine &machine);

}  // namespace outcrop::aggregate
