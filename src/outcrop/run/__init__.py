"""Runs: the state on disk, initial values, the engine, and what is reported about them."""
