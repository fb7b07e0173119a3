"""Hostile tests: generated nonsense for everything that Outcrop reads, watched from outside. `python -m tests.hostile`."""
