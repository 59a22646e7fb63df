"""What the study shares with the reproductions: data, measures, results files and tables."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = [HERE.parent / "choosing-a-generator.md", HERE.parent / "measurements" / "generators-compared.md"]
"""The guide, and the page of all measurements."""
RESULTS = HERE / "results"

sys.path[:0] = [str(HERE.parent / "reproductions" / name) for name in ("private_inference", "two_stage")]

import measures  # noqa: E402
import runs  # noqa: E402
import table_measures  # noqa: E402
import tables  # noqa: E402

import data  # noqa: E402

__all__ = ["HERE", "PAGES", "RESULTS", "ROOT", "data", "measures", "runs", "table_measures", "tables"]
