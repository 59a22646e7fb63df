"""Attacks on private evolution over the rows of a table."""
