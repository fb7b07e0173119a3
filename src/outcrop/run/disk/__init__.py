"""The storage of a run: the manifest, the layout of planes, commits, verification, and metadata for readers of Zarr."""
