"""The benchmarks `ladder` and `table2`. They repeat published measurements, and also measure Outcrop's own schemes."""
