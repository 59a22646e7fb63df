"""Generators and the privacy primitives they are built from; they write a ledger."""
