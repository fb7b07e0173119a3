"""Turn an update equation into a compiled kernel."""
