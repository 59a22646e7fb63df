"""Canaries: what is planted in data, and how released data are searched for it."""
