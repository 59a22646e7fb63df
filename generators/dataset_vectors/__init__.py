"""Claims about dataset vectors, and their runs."""
