// Functions that simulate an MPI whose windows are broken. MPI's profiling interface makes the test program call these
// functions in place of MPI's own functions. By default, they do the same as MPI's own functions.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// Breaks the windows of this rank in the given way from now on.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
