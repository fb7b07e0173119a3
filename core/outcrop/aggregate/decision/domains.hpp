// Which parts of the file are touched, and how they are shared out.
//
// A rank's regions are what it touches, seen from afar: gaps that are not worth knowing about count as touched. From all
// ranks' regions, with the bytes in each, follow domains of about equal bytes; or, where every rank has a few long runs,
// domains that follow the data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outcrop/aggregate/decision/declaration.hpp"

namespace outcrop::aggregate {

struct Region {
  Range range;
  std::uint64_t bytes = 0;  ///< of the rank, inside
};

/// Sorted, apart from each other by at least `gap_bytes`; at most `most`, for which larger gaps are given up.
std::vector<Region> regions_of(const Pattern &pattern, std::uint64_t gap_bytes, std::size_t most);

/// Up to `count` lists of ranges, cut at multiples of `alignment`, that hold all regions.
std::vector<std::vector<Range>> cut_domains(std::span<const Region> regions, std::size_t count,
                                            std::uint64_t alignment);

}  // namespace outcrop::aggregate
