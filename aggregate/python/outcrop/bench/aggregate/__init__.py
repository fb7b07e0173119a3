"""`outcrop agg bench`: the I/O of known MPI codes, measured in several ways."""
