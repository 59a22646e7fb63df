"""What this reproduction shares with that of private inference: data, measures, results files and tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "private_inference"))

import figures
import measures
import runs
import tables
from grammar import topic_of

import data

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).resolve().parents[1] / "secret-evolution.md"

__all__ = ["PAGE", "RESULTS", "arguments", "data", "figures", "measures", "runs", "tables", "topic_of"]


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that all scripts have; results go beside this file."""
    parser = runs.arguments(description)
    parser.set_defaults(results=RESULTS)
    return parser
