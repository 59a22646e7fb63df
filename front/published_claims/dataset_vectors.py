"""Checks of the statements of "EPSVec: Efficient and Private Synthetic Data Generation via Dataset Vectors"."""

from __future__ import annotations

from cupel.published_claims.statement import Checks

CHECKS: Checks = {}
