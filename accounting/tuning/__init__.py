"""Tuning: the best of a random number of runs is released, and nothing else of them."""
