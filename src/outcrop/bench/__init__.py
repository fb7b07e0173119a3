"""This package contains the benchmarks. The benchmarks measure this machine with the same code that a run uses."""
