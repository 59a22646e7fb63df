"""Checks of the statements of "Secret-Protected Evolution for Differentially Private Synthetic Text Generation"."""

from __future__ import annotations

from cupel.published_claims.statement import Checks

CHECKS: Checks = {}
