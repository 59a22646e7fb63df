"""The verdicts on a run in its ledger. Every later verdict takes them into account.

Otherwise a refuted claim could be made to look supported by leaving out the audit and assaying the run again.
Finite-sample bounds of all verdicts hold jointly: the j-th verdict's audits may err with probability
`ALLOWED_ERROR`/2^j, and Σ_j 2^-j = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from dpassay.accounting.bounds import Bound
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.audits.verdict import ALLOWED_ERROR
from dpassay.base.errors import InputError
from dpassay.reports.assay import PastVerdict
from dpassay.reports.release import Release

MAX_VERDICTS = 40
"""The most verdicts on a run: later audits would need a confidence so close to 1 that they could show nothing."""


@dataclass(frozen=True)
class RecordedVerdict:
    """A verdict in the ledger with the bounds it rests on, which is private, and the releasable part of its assay."""

    past: PastVerdict
    public: Release


def recorded(run: Run) -> list[RecordedVerdict]:
    """The verdicts on a run, oldest first; a `LedgerError` if an entry is not a verdict of this version."""
    try:
        return [
            RecordedVerdict(PastVerdict.model_validate(body["verdict"]), Release.model_validate(body["public"]))
            for body in run.verdicts()
        ]
    except (KeyError, TypeError, ValidationError):
        raise LedgerError(
            f"run {run.name!r}: a verdict in the ledger was written by another version of dpassay; use that version"
        ) from None


def refuted_runs(ledger: Ledger, run: Run) -> list[str]:
    """The names of other runs in the ledger with the run's plan that were refuted, or contradicted by an audit."""
    results = []
    for name in ledger.runs():
        other = ledger.run(name)
        if name == run.name or (other.plan, other.adjacency, other.unit) != (run.plan, run.adjacency, run.unit):
            continue
        verdicts = [body.get("verdict") or {} for body in other.verdicts()]
        if any(item.get("verdict") == "REFUTED" or item.get("contradictions") for item in verdicts):
            results.append(name)
    return results


def record(run: Run, verdict: PastVerdict, public: Release) -> None:
    """Appends a verdict to the ledger. When it returns, the verdict counts for all later ones."""
    run.record_verdict({"public": public.model_dump(mode="json"), "verdict": verdict.model_dump(mode="json")})


def confidence_of_next(earlier: Sequence[PastVerdict], audited: bool) -> float:
    """The confidence of the finite-sample audits of the next verdict, 1 − β/2^j for the j-th."""
    if audited and len(earlier) >= MAX_VERDICTS:
        raise InputError(
            f"this run has {len(earlier)} verdicts. All audits of a run share one probability of error, so another one "
            "could show nothing; read the existing report"
        )
    return 1 - ALLOWED_ERROR / 2.0 ** (min(len(earlier), MAX_VERDICTS) + 1)


def bounds_of(earlier: Iterable[PastVerdict]) -> list[Bound]:
    """The lower bounds of all audits so far."""
    return [bound for past in earlier for audit in past.audits for bound in audit.bounds]


def distinct(bounds: Iterable[Bound]) -> list[Bound]:
    """The bounds in their order, without duplicates."""
    results: list[Bound] = []
    for bound in bounds:
        if bound not in results:
            results.append(bound)
    return results
