"""Benchmarks, which measure this machine with the code that runs use."""
