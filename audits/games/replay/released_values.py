"""Checks released values against the ledger: every released value must be the committed one.

Only committed values may be released. Each is covered by the charge of its key, and a resumed run replays it. Anyone
who sees the releases (a folder, a log, an endpoint) can check this from outside, in order of release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpassay.accounting.ledger.entries import Json, LedgerError, canonical
from dpassay.accounting.ledger.run import Run
from dpassay.audits.games.replay.record_replay import Finding


@dataclass(frozen=True, slots=True)
class ReleasedValue:
    """A released value of JSON types, and the key of its step in the run."""

    key: str
    value: Json


def released_findings(run: Run, released: Iterable[ReleasedValue]) -> list[Finding]:
    """The released values that the ledger of a run does not cover.

    - A value whose key was never charged, or never committed.
    - A value other than the committed one. It was drawn again: two releases under one charge.

    Seeing the same value again is not a further release.

    Args:
        run: of a ledger that `verify` accepts; note that a chain that was rewritten as a whole verifies as well.
        released: all released values, in order.

    Returns:
        Findings of kind ``charges``, whose `step` is the index of the value among all released.
    """
    results = []
    for number, seen in enumerate(released):
        what = _violation(run, seen)
        if what is not None:
            results.append(Finding("charges", number, None, f"the committed value of {seen.key!r}", what))
    return results


def _violation(run: Run, seen: ReleasedValue) -> str | None:
    try:
        outcome = run.outcome(seen.key)
        if outcome is None:
            return "a value that was charged and not committed" if run.charged(seen.key) else "a value without a charge"
        same = canonical(outcome.value) == canonical(seen.value)
    except LedgerError:
        return "a value that no ledger can hold"
    return None if same else "another value, drawn again"
