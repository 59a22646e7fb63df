"""Claims about private evolution over the rows of a table, and its runs."""
