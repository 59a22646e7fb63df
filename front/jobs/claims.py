"""Checks the registry of published claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cupel.published_claims.registry import CheckedClaim, check_claim, named


def check_published_claims(ids: Sequence[str] = ()) -> Iterator[CheckedClaim]:
    """Computes what published claims state, one after the other.

    Args:
        ids: of the claims; all if none is named.

    Raises:
        InputError: if there is no such claim.
    """
    return map(check_claim, named(ids))
