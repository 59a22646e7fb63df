"""Claims about secret-protected evolution, its runs and their audits."""
