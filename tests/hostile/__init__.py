"""Hostile tests give random wrong input to every part of Outcrop that reads input, and check the result."""
