"""This package turns an update equation into a compiled kernel."""
