"""Tiers: what memory and storage this machine has, and how fast they are."""
