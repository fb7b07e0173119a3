"""Tiers are the memories and file systems of this machine. This package finds them and measures their speed."""
