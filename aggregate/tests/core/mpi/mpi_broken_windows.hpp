// An MPI whose windows do not work, in one way or another: calls of this program go through here (MPI's profiling
// interface), and do what MPI does unless told otherwise.
#pragma once

namespace outcrop::aggregate {

enum class Broken { nothing, making, opening_at_last_rank, wrong_bytes, never_ending, hanging };

/// How windows are from now on at this rank.
void break_windows(Broken how);

}  // namespace outcrop::aggregate
