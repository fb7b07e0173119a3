"""Benchmarks: what this machine reaches, measured through the same code that runs use."""
