"""The acquisition of a run: sources, receivers, norms and snapshots."""
