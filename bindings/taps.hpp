// Conversion only: what is asked of a pass besides updating, and the sums that come of it.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "outcrop/exec/taps.hpp"

namespace outcrop {

/// `python` is a PassTaps of outcrop.run.taps, which must outlive the result: values are read and written where they lie.
TapRequests to_requests(nanobind::handle python);

/// Tuples: sum and sum of squares, each an integer as bytes and what is not finite; minimum and maximum.
nanobind::list from_sums(const std::vector<FieldSum> &sums);

}  // namespace outcrop
