// An MPI whose windows are broken. This program calls these functions instead of MPI's (MPI's profiling interface). By
// default they do the same as MPI's functions.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// Sets the way in which windows are broken at this rank from now on.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
