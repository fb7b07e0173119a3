"""Tiers: the memory and storage of this machine, and their speed."""
