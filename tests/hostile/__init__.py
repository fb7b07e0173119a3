"""Hostile tests. They give random wrong input to every part of Outcrop that reads input, and check how Outcrop
reacts."""
