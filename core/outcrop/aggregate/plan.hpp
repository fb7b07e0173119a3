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
#include <string>
#include <vector>

#include "outcrop/aggregate/declaration.hpp"
#include "outcrop/aggregate/elect.hpp"
#include "outcrop/aggregate/medium.hpp"
#include "outcrop/aggregate/transport.h"

namespace outcrop::aggregate {

/// A value of PlanOptions::own_run_bytes: 64 KiB where all ranks are on one node and nobody says how many aggregate, for
/// gathering only costs a copy there; else never, for a file system that several nodes share likes few writers.
constexpr std::uint64_t own_where_it_pays = ~std::uint64_t{0};

/// The same on all ranks but for media, which are alike in number. 0 is chosen for the first three.
struct PlanOptions {
  std::uint64_t buffer_bytes = 0;         ///< of one buffer; a multiple of 4096
  std::uint32_t buffers = 0;              ///< of each aggregator, 2 to 8
  std::uint32_t aggregators = 0;          ///< domains, when ranks do not write their own; chosen: as below
  std::uint32_t aggregators_on_node = 1;  ///< when their number is chosen, at most so many for each node
  std::uint64_t own_run_bytes = 0;        ///< every rank writes its own if all have runs of this mean length; 0: never
  bool reading_only = false;              ///< ranks may declare the same bytes; such a plan refuses to write
  Elect elect = elect_by_bytes;
  std::vector<Medium> media = {};  ///< of the tiers that `elect` may choose, on this rank's node; none: ordinary memory
};

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
