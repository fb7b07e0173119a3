"""Arrays on tiers: NumPy arrays that live in a memory or on a file system of one's choice, and what is kept of them."""
