"""Initial values and models: where they come from, and how they come to have the shape of the grid."""
