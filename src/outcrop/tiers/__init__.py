"""Tiers are the memories and file systems of this machine. This package finds the tiers of this machine, and measures
the speed of each tier."""
