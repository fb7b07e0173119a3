// A placement in words: why this rank, this node, this tier, and what each other choice would have cost.
#pragma once

#include <cstddef>
#include <string>

#include "outcrop/aggregate/placement/placement.hpp"

namespace outcrop::aggregate {

/// Lines, each ended: the placement as a whole with its notes, then the `domains_most` domains that take longest.
std::string explain(const Placement &placement, const Machine &machine, const Wishes &wishes,
                    std::size_t domains_most = 1);

/// Of one domain.
std::string explain_choice(const Placement &placement, const Machine &machine, std::size_t domain);

}  // namespace outcrop::aggregate
