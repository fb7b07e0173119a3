"""Make plans. A plan lists all reads, updates and writes of a run in order, and has a predicted cost. The package uses
no files, no threads and no clock."""
