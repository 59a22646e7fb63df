"""The audit of a function of an installed library: its noise is recorded, and replayed on neighbours."""
