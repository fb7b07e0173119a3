"""Runs on raw block devices: their format, and the checks that protect other content of a device."""
