"""What this reproduction shares with that of private inference: results files, tables, options."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "private_inference"))

import runs
import tables

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "two-stage.md"

__all__ = ["HERE", "PAGE", "RESULTS", "arguments", "runs", "tables"]


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all scripts have, with the folder of synthetic tables; results go beside this file."""
    parser = runs.arguments(description)
    parser.set_defaults(results=RESULTS)
    parser.add_argument("--tables", type=Path, default=HERE / "tables", help="folder of synthetic tables (tables/)")
    return parser
