"""Hostile tests. They give generated nonsense to every part of Outcrop that reads input, and check how Outcrop
reacts."""
