"""Claims about two-stage fine-tuning, and its runs."""
