"""Attacks on synthetic tables from noisy marginals."""
