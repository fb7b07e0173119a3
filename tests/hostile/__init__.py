"""Hostile tests: generated nonsense for all that Outcrop reads, watched from outside."""
