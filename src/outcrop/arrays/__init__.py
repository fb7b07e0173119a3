"""Arrays on tiers. An array on a tier is a NumPy array in the memory or on the file system that the user chooses. The
user can let Outcrop commit the values of the array."""
