"""`outcrop bench ladder`: from plain sweeps over swapped memory to wavefronts over direct I/O."""
