// What a plan has come to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/node/tally.hpp"

namespace outcrop::aggregate {

/// Figures of a plan, the same on all ranks.
struct PlanSummary {
  std::uint64_t bytes = 0;       ///< of all ranks, in one step
  Range hull;                    ///< of the file, without the base
  std::vector<int> aggregators;  ///< of each domain
  std::vector<std::uint64_t> domain_bytes;
  std::vector<std::uint32_t> tiers;  ///< of each domain's buffers, by PlanOptions::media
  std::vector<Tally> tallies;
  std::vector<int> nodes;  ///< of each rank: the lowest rank there
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  bool own = false;                 ///< every rank writes its own bytes
  std::vector<std::string> places;  ///< where buffers of this rank's node lie, a line for each tier
  std::vector<std::string> notes;   ///< what could not be done as preferred, and why (of this rank)
};

}  // namespace outcrop::aggregate
