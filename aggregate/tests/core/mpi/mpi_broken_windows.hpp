// Functions that simulate an MPI whose windows are broken. By MPI's profiling interface, the test program calls them in
// place of MPI's own functions. By default, they do the same as MPI's functions.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// From now on, windows are broken in this way at this rank.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
