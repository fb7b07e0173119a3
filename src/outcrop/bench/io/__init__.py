"""`outcrop bench io`: a device by access size, depth and interface."""
