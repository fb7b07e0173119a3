"""This package contains the benchmarks. The benchmarks measure this machine with the code that runs use."""
