"""The benchmarks `ladder` and `table2`. Both benchmarks repeat published measurements, and also measure Outcrop's own
schemes."""
