"""Aggregation: many ranks, one file. A few ranks gather what all have, and write or read it in large pieces."""
