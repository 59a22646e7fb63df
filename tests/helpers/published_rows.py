"""Rows of the registry of published claims, checked as they are or with other parameters."""

from __future__ import annotations

from typing import Any

from dpassay.claims.published.registry import CheckedClaim, check_claim, read_published_claims


def checked(row: str, **changes: Any) -> CheckedClaim:
    """The claim of this id, with other parameters for its check where they are given."""
    (claim,) = (each for each in read_published_claims() if each.id == row)
    unknown = changes.keys() - claim.parameters.keys()
    assert not unknown, f"{row} has no {', '.join(unknown)}"
    return check_claim(claim.model_copy(update={"parameters": claim.parameters | changes}))


def lower(row: str, **changes: Any) -> float:
    """The lower bound of a check."""
    result = checked(row, **changes).finding.lower
    assert result is not None
    return result


def upper(row: str, **changes: Any) -> float:
    """The upper bound of a check."""
    result = checked(row, **changes).finding.upper
    assert result is not None
    return result
