"""`outcrop agg bench`: measures several ways to perform the I/O of known MPI programs."""
