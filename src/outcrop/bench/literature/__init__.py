"""Benchmarks that repeat published measurements and add Outcrop's schemes. The benchmarks are `ladder` and `table2`."""
