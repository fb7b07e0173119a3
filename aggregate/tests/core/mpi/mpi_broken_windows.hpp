// These functions simulate an MPI whose windows are broken. The functions have the names of functions of MPI, and
// replace these functions of MPI. The functions call the original functions of MPI through MPI's profiling interface
// (PMPI). By default, they do nothing else.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// After a call of break_windows(), the windows of this rank are broken in the given way.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
