"""Initial values and models: names, files of all formats, and interpolation onto the grid."""
