// A plan contains all decisions about the access to a file. The ranks make these decisions before the first step. All
// ranks make the plan together. They make it once, and use it for every step.
//
//     rank 0..n-1   declaration ──► domains ──► tallies ──► elect: aggregators ──► patterns at the aggregators ──► overlaps?
//                                                                                  rounds, memory shared by each node
//
// A tally is the number of bytes that a rank has in a domain. A domain is a list of ranges of the file. The aggregator
// of a domain is the rank that writes and reads the ranges of the domain. A round is a part of a domain that fits into
// one buffer. If every rank has only a few long contiguous runs of bytes, each rank can be the aggregator of its own
// bytes. In this case, ranks send no bytes to other ranks.
//
// In Plan::make(), the caller chooses the aggregators. PlacedPlan chooses the aggregators with the lowest cost on the
// machine that the ranks run on. The interfaces for C, Fortran and Python use PlacedPlan:
//
//     settings of all ranks ──► machine (machine.hpp) ──► plan, elected by cost ──► files: staged or not
//                                                            └── explain(), with the measured time of steps
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/shared_memory.hpp"
#include "outcrop/aggregate/placement/placement.hpp"
#include "outcrop/aggregate/placement/settings.hpp"
#include "outcrop/aggregate/steps/step.hpp"
#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

struct FileOptions;

/// A handle of a plan. All copies of the handle refer to the same plan. Only one thread at a time may use a plan, its
/// files and its operations.
class Plan {
 public:
  /// All ranks must call this function. Makes a plan. `transport` must outlive the plan. Throws InputError on every
  /// rank in three cases: two ranks declare the same byte, the options of the ranks differ, or options are invalid. The
  /// message about a byte that two ranks declare names both ranks and the offset. Throws CommunicationError.
  static Plan make(outcrop_transport &transport, const Declaration &declaration, const PlanOptions &options = {});

  const PlanSummary &summary() const;
  int rank() const;
  /// Returns the minimum size in bytes of the memory of each variable of this rank.
  std::span<const std::uint64_t> memory_bytes() const;

  const std::shared_ptr<Engine> &engine() const { return engine_; }

 private:
  explicit Plan(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<Engine> engine_;
};

// --- a plan whose aggregators are placed by cost ---------------------------------------------------------------------

/// The texts of the settings that one rank has, grouped by source. `problem` is an error that this rank has already
/// found, or empty.
struct GivenSettings {
  Texts arguments, hints, environment;
  std::string problem = {};
};

/// All ranks must call this function. Reads the settings of this rank, and checks that all ranks have the same
/// settings. Only the folder and the size of a stage may differ between ranks. Returns the settings of this rank. If
/// `first_has_environment` is true, all ranks use the environment of rank 0. Also sets the time limit for waiting in
/// the transport. If the settings of one rank are invalid, throws InputError on all ranks.
Settings agreed_settings(outcrop_transport &transport, GivenSettings given, bool first_has_environment = false);

class PlacedPlan {
 public:
  /// All ranks must call this function. Makes a plan from the result of agreed_settings(). `transport` must outlive the
  /// plan. `sources` has data about the machine that are not in the settings. Throws the errors of Plan::make() and
  /// find_machine().
  static PlacedPlan make(outcrop_transport &transport, const Declaration &declaration, const Settings &settings,
                         MachineSources sources = {});

  const Plan &plan() const { return *plan_; }
  const Settings &settings() const { return settings_; }
  /// Returns the predicted time, in seconds, of a step that is not staged.
  double seconds() const { return placed_->placement.seconds; }
  std::vector<std::string> tiers() const;  ///< returns the name of the tier of each domain's buffers

  /// Decides whether the steps of a file are staged. Stores the folder and the size of the stage in `options`. The
  /// decision depends on the settings of the plan. `arguments` can override five of these settings: stage, stage_bytes,
  /// stage_persistence, seconds_between and reads_back. explain() shows the last decision. Throws InputError.
  void set_stage(FileOptions &options, bool writable, const Texts &arguments = {});

  /// Stores the measured times of a step, so that explain() can show them. `what` is "write", "read", "staged write" or
  /// "staged read". The plan keeps the times of the last 1024 steps of each kind.
  void add_measured(const std::string &what, const Timing &timing);

  /// Returns a text for users. The text names the aggregators, and gives the reasons why they were chosen. The text
  /// also has the decision about staging, the settings, and the measured times of this rank's steps. The text describes
  /// the `max_domains` slowest domains in detail. `library` is the name of the MPI library.
  std::string explain(std::size_t max_domains = 1, const std::string &library = {}) const;

 private:
  Settings settings_;
  std::shared_ptr<Placed> placed_;
  std::vector<Medium> media_;
  std::vector<std::string> lines_;
  std::optional<Plan> plan_;
  std::optional<Staging> staging_;
  std::map<std::string, std::deque<Timing>> measured_;

  std::map<std::string, double> predicted() const;
  std::vector<std::string> measured_lines() const;
};

}  // namespace outcrop::aggregate
