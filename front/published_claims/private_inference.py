"""Checks of the statements of "Clustering and Median Aggregation Improve Differentially Private Inference"."""

from __future__ import annotations

from cupel.published_claims.statement import Checks

CHECKS: Checks = {}
