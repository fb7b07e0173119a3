"""`outcrop agg bench`: transfers of known MPI codes, by several ways."""
