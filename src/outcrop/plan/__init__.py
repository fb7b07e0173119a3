"""Plans: what will be read, updated and written, in which order, and what it should cost. Pure: no files, no
threads."""
