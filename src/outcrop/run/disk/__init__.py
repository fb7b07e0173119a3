"""The storage of a run: manifest, layout of planes, commits, verification, and metadata for readers of Zarr."""
