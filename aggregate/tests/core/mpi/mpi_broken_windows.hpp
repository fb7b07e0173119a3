// Functions that simulate an MPI whose windows are broken. They replace MPI's own functions by MPI's profiling
// interface, and do the same by default.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// From this call on, the windows of this rank are broken in the given way.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
