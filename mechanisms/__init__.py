"""Generators, which charge a ledger, and the privacy primitives that they use."""
