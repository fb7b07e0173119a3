// A placement in words: why this rank, this node, this tier, and what each other choice would have cost; and what steps took
// at a rank, beside what was predicted.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/steps/step.hpp"

namespace outcrop::aggregate {

/// Lines, each ended: the placement as a whole with its notes, then the `max_domains` domains that take longest.
std::string explain(const Placement &placement, const Machine &machine, const PlacementOptions &options,
                    std::size_t max_domains = 1);

/// Of one domain.
std::string explain_choice(const Placement &placement, const Machine &machine, std::size_t domain);

/// The part of the shorter of copying and storage that went on beside the other; nothing where one is missing.
std::optional<double> overlap(const Timing &timing);

class MeasuredSteps {
 public:
  /// A `what`: "write", "staged read". The last thousand of each are kept.
  void add(const std::string &what, const Timing &timing);

  /// A line for each `what`, of medians, with its predicted seconds where there are any.
  std::vector<std::string> lines(int rank, const std::map<std::string, double> &predicted) const;

 private:
  std::map<std::string, std::deque<Timing>> steps_;
};

}  // namespace outcrop::aggregate
