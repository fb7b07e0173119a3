// Everything about a pattern of access that can be known before the first step: made once, by all ranks, used for every step.
//
//     rank 0..n-1   declaration ──► domains ──► tallies ──► elect: aggregators ──► patterns at the aggregators ──► overlaps?
//                                                                                  rounds, memory shared by each node
//
// A domain is a list of ranges of the file that one rank, its aggregator, writes or reads; a round is what of it fits into
// one buffer. Where every rank's bytes are a few long runs, each rank is the aggregator of its own, and no bytes travel.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "outcrop/aggregate/decision/decision.hpp"
#include "outcrop/aggregate/decision/extent.hpp"
#include "outcrop/aggregate/transport/transport.h"

namespace outcrop::aggregate {

class Engine;

/// Handles on the same plan are copied as pointers are. One thread at a time uses a plan and its files and operations.
class Plan {
 public:
  /// Collective. `transport` must outlive the plan. Throws InputError on every rank where ranks overlap (with both ranks
  /// and the offset), where options differ or are wrong; CommunicationError.
  static Plan make(outcrop_transport &transport, const Declaration &declaration, const PlanOptions &options = {});

  const PlanSummary &summary() const;
  int rank() const;
  /// Bytes that the memory of each of this rank's variables must have.
  std::span<const std::uint64_t> memory_bytes() const;

  const std::shared_ptr<Engine> &engine() const { return engine_; }

 private:
  explicit Plan(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<Engine> engine_;
};

}  // namespace outcrop::aggregate
