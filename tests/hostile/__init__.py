"""Hostile tests: they give generated nonsense to every part of Outcrop that reads input, and watch the results."""
