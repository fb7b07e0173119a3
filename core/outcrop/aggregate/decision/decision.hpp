// Domains, and what else a plan decides, from what all ranks say about their patterns: computed alike everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "outcrop/aggregate/decision/domains.hpp"
#include "outcrop/aggregate/decision/overlap.hpp"
#include "outcrop/aggregate/decision/plan_options.hpp"
#include "outcrop/aggregate/transport/link.hpp"

namespace outcrop::aggregate {

struct Decision {
  std::vector<std::vector<Range>> domains;
  std::vector<int> owners;  ///< of each domain where ranks have their own; else empty
  std::uint64_t buffer_bytes = 0;
  std::uint32_t buffers = 0;
  std::uint64_t bytes = 0;
  Range hull;
  std::optional<Overlap> overlap;  ///< found already; only where ranks have their own
};

/// Collective. `problem`: why this rank's declaration cannot be; it is thrown on all ranks, as are wrong options.
Decision decide(const Link &link, const Pattern &pattern, const PlanOptions &options, const std::string &problem);

}  // namespace outcrop::aggregate
