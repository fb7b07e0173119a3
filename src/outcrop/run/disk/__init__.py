"""A run where it is kept: folder or device, manifest, the layout of planes, and how all of it changes at once."""
