"""Benchmarks that repeat published measurements and add our schemes: the ladder, and Table II."""
