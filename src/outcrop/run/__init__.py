"""Runs of simulations: options, initial values, the engine, storage and reports."""
