"""The measurements of the literature, with our schemes beside its own: the ladder, and Table II."""
