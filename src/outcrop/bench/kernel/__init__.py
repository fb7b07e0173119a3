"""`outcrop bench kernel`: generated loops beside loops written by hand."""
