"""From an update equation to a compiled kernel."""
