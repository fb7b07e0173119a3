"""Plans: what a run reads, updates and writes, in which order, and the predicted cost. No files, threads or clock."""
