"""Checks of what the code and the documentation of libraries state."""

from __future__ import annotations

from cupel.published_claims.statement import Checks

CHECKS: Checks = {}
