"""Models that more than one module of tests loads."""

from whole_jobs import make_model

__all__ = ["make_model"]
