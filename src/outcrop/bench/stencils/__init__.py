"""`outcrop bench stencils`: every family of the library, beside Devito."""
