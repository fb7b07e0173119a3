"""This package has the benchmarks. They measure this machine with the same code that a run uses."""
