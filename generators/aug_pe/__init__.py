"""Claims about Aug-PE, and its runs."""
