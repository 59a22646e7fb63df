"""Checks of the statements of "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators"."""

from __future__ import annotations

from cupel.published_claims.statement import Checks

CHECKS: Checks = {}
