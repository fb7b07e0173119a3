// Do any two ranks declare the same byte? Found when a plan is made, so that no step has to look.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "outcrop/aggregate/decision/declaration.hpp"

namespace outcrop::aggregate {

struct Sender {
  int rank = 0;
  Pattern pattern;
};

struct Overlap {
  std::uint64_t offset = 0;
  int first_rank = 0, second_rank = 0;  ///< the lower one first; may be the same
};

/// An offset at which two extents meet, if there is one.
std::optional<std::uint64_t> meeting(const Extent &a, const Extent &b);

/// One of the overlaps, if there are any.
std::optional<Overlap> find_overlap(std::span<const Sender> senders);

}  // namespace outcrop::aggregate
