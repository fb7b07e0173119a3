// A plan whose aggregators are placed on the machine that the ranks run on: what programs in C, Fortran and Python get.
//
//     settings of all ranks ──► machine (machine.hpp) ──► plan, elected by cost ──► files: staged or not
//                                                            └── explain(), with what steps took
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "outcrop/aggregate/file.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/placement/explain.hpp"
#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/aggregate/placement/staging.hpp"
#include "outcrop/aggregate/plan.hpp"

namespace outcrop::aggregate {

/// What a rank gives of settings, and what it already knows to be wrong.
struct GivenSettings {
  Texts arguments, hints, environment;
  std::string problem = {};
};

/// Collective: the settings of all ranks, which must be alike but for a stage's folder and its bytes. With
/// `environment_of_first`, rank 0's environment is that of all ranks. From now on the transport waits no longer than they
/// say. Throws InputError, on all ranks, for what is wrong at one.
Settings agreed_settings(outcrop_transport &transport, GivenSettings given, bool environment_of_first = false);

class PlacedPlan {
 public:
  /// Collective, with settings that are agreed. `transport` must outlive the plan. `sources` is what the caller knows of the
  /// machine beyond the settings. Throws as Plan::make and find_machine do.
  static PlacedPlan make(outcrop_transport &transport, const Declaration &declaration, const Settings &settings,
                         MachineSources sources = {});

  const Plan &plan() const { return *plan_; }
  const Settings &settings() const { return settings_; }
  double seconds() const { return placed_->placement.seconds; }  ///< predicted for a step straight to the file
  std::vector<std::string> tiers() const;                        ///< that hold the buffers of each domain

  /// Where a file with these options is staged, by the settings and by `arguments`, which override them: stage,
  /// stage_bytes, stage_persistence, seconds_between, reads_back. Remembers the decision for explain(). Throws InputError.
  void set_stage(FileOptions &options, bool writable, const Texts &arguments = {});

  /// What a step took: "write", "staged read".
  void add_measured(const std::string &what, const Timing &timing) { measured_.add(what, timing); }

  /// In words: who aggregates where and why, the `max_domains` that take longest in detail, staging, settings, and what
  /// steps took at this rank. `library` is what carries the bytes.
  std::string explain(std::size_t max_domains = 1, const std::string &library = {}) const;

 private:
  Settings settings_;
  std::shared_ptr<Placed> placed_;
  std::vector<Medium> media_;
  std::vector<std::string> lines_;
  std::optional<Plan> plan_;
  std::optional<Staging> staging_;
  MeasuredSteps measured_;

  std::map<std::string, double> predicted() const;
};

}  // namespace outcrop::aggregate
