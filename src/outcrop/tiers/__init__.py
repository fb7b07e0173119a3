"""Tiers are the memories and file systems of this machine. This package finds the tiers and measures their speed."""
