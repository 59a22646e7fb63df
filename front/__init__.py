"""cupel verifies privacy claims about synthetic text and tables."""

__version__ = "0.1.0"
