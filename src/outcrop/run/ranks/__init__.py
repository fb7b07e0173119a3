"""Runs of several ranks: the group of ranks, the cut of the grid, and the generation on which all ranks agree."""
