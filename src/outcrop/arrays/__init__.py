"""Arrays on tiers: NumPy arrays in a memory or on a file system of the user's choice, with commits if requested."""
