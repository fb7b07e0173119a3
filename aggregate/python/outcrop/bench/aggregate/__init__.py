"""`outcrop agg bench`: MPI codes' kernels by several ways."""
