"""Checks the registry of published claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpassay.base.errors import InputError
from dpassay.base.progress import Step, with_progress
from dpassay.claims.published.registry import CheckedClaim, check_claim, read_published_claims
from dpassay.claims.published.statement import PublishedClaim


def named(ids: Sequence[str]) -> tuple[PublishedClaim, ...]:
    """The published claims with these ids, in this order; all if none is named.

    Raises:
        InputError: if there is no such claim.
    """
    known = {claim.id: claim for claim in read_published_claims()}
    for item in ids:
        if item not in known:
            raise InputError(f"there is no published claim {item!r}; known are {', '.join(known)}")
    return tuple(known[item] for item in dict.fromkeys(ids)) if ids else tuple(known.values())


def check_published_claims(claims: Sequence[PublishedClaim], step: Step) -> Iterator[CheckedClaim]:
    """Computes what published claims state, one after the other.

    Args:
        claims: to check.
        step: called after each.
    """
    return with_progress(map(check_claim, claims), step, len(claims))
