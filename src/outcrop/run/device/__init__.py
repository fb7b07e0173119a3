"""Runs on raw block devices: their header, and all that keeps what others have there safe."""
