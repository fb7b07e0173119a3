"""The results of a run for other programs: export to files and object stores, and xarray."""
