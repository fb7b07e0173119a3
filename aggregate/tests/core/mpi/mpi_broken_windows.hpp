// Functions that simulate an MPI whose windows are broken. They have the names of MPI's own functions, and call the
// original functions by the names of MPI's profiling interface (PMPI). By default, they only call the original
// functions.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// From this call on, the windows of this rank are broken in the given way.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
