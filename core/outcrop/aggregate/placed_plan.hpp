// A plan by settings alone, placed on the machine that the ranks run on: what programs in C and Fortran get.
//
//     settings of all ranks alike ──► machine (machine_here.hpp) ──► plan, elected by cost ──► files: staged or not
//                                                                        └── explain(), with what steps took
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/node/medium.hpp"
#include "outcrop/aggregate/placement/elect_by_cost.hpp"
#include "outcrop/aggregate/placement/measured.hpp"
#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/aggregate/placement/staging.hpp"
#include "outcrop/aggregate/plan.hpp"

namespace outcrop::aggregate {

/// Collective: what was wrong with one rank's hints or environment is thrown on all, as are settings that differ, but for
/// a stage and its bytes.
Settings agreed_settings(outcrop_transport &transport, const Texts &hints, const Texts &environment);

class PlacedPlan {
 public:
  /// Collective, with settings that are agreed. `transport` must outlive the plan. Throws as Plan::make does.
  static PlacedPlan make(outcrop_transport &transport, const Declaration &declaration, const Settings &settings);

  const Plan &plan() const { return *plan_; }

  /// What the settings say of files, for one with these options: where it is staged. Remembers it for explain().
  void set_stage(FileOptions &options, bool writable);

  Measured &measured() { return measured_; }

  /// In words: who aggregates where and why, the `domains_most` that take longest in detail, staging, settings.
  std::string explain(std::size_t domains_most = 1) const;

 private:
  Settings settings_;
  std::shared_ptr<Placed> placed_;
  std::vector<Medium> media_;
  std::vector<std::string> lines_;
  std::optional<Plan> plan_;
  std::optional<Staging> staging_;
  Measured measured_;

  std::map<std::string, double> predicted() const;
};

}  // namespace outcrop::aggregate
