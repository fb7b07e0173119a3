"""Arrays on tiers. These are NumPy arrays in the memory or on the file system that the user chooses. Commits are
optional."""
