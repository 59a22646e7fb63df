"""Claims about synthetic tables from noisy marginals, and their runs."""
