// An MPI with broken windows. Calls of this program go through these functions (MPI's profiling interface). By default they do
// the same as MPI.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// Sets how windows are broken at this rank from now on.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
