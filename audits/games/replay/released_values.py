"""What left a process against what its ledger holds: every released value must be the one that was committed.

Only committed values may leave, each is paid for by the charge of its key, and a resumed run replays them. Whoever sees
what was released (a folder, a log, an endpoint) can check that from outside, in the order in which it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cupel.accounting.ledger.entries import Json, LedgerError, canonical
from cupel.accounting.ledger.run import Run
from cupel.audits.games.replay.record_replay import Finding


@dataclass(frozen=True, slots=True)
class Released:
    """A value that was seen outside.

    Attributes:
        key: of its step in the run.
        value: JSON types.
    """

    key: str
    value: Json


def released_findings(run: Run, released: Iterable[Released]) -> list[Finding]:
    """Releases that the ledger of a run does not pay for.

    - A value whose key was never charged, or never committed.
    - A value other than the committed one. It was drawn once more: two releases under one charge.

    The same value seen again is no further release.

    Args:
        run: of a ledger, which should `verify`; a chain that was written anew verifies as well.
        released: everything that was seen, in order.

    Returns:
        Findings of kind ``charges``, whose `step` is the number of the value among all released.
    """
    found = []
    for number, seen in enumerate(released):
        what = _unpaid(run, seen)
        if what is not None:
            found.append(Finding("charges", number, None, f"the committed value of {seen.key!r}", what))
    return found


def _unpaid(run: Run, seen: Released) -> str | None:
    try:
        outcome = run.outcome(seen.key)
        if outcome is None:
            return "a value that was charged and not committed" if run.charged(seen.key) else "a value without a charge"
        same = canonical(outcome.value) == canonical(seen.value)
    except LedgerError:
        return "a value that no ledger can hold"
    return None if same else "another value, drawn once more"
