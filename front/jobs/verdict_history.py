"""The verdicts on a run, as its ledger holds them: each is recorded, and counts for every later one.

Otherwise a claim that an audit refuted would come out as supported when the audit is left out and the run assayed
again. Finite-sample bounds of all verdicts hold jointly: the j-th verdict's audits may err with probability
`ALLOWED_ERROR`/2^j, and Σ_j 2^-j = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from cupel.accounting.bounds import Bound
from cupel.accounting.ledger.entries import LedgerError
from cupel.accounting.ledger.run import Run
from cupel.audits.verdict import ALLOWED_ERROR
from cupel.errors import InputError
from cupel.reports.assay import PastVerdict
from cupel.reports.release import Release

MOST = 40
"""The most verdicts on a run: the audits of a later one would have to be all but certain, and could show nothing."""


@dataclass(frozen=True)
class Recorded:
    """A verdict in the ledger.

    Attributes:
        past: the verdict, and what it rests on; private.
        public: what of its assay may leave.
    """

    past: PastVerdict
    public: Release


def recorded(run: Run) -> list[Recorded]:
    """The verdicts on a run, in their order.

    Raises:
        LedgerError: where an entry is no verdict.
    """
    try:
        return [
            Recorded(PastVerdict.model_validate(body["verdict"]), Release.model_validate(body["public"]))
            for body in run.verdicts()
        ]
    except (KeyError, TypeError, ValidationError):
        raise LedgerError(
            f"run {run.name!r}: a verdict in the ledger was written by another version of cupel; use that one"
        ) from None


def record(run: Run, verdict: PastVerdict, public: Release) -> None:
    """Appends a verdict to the ledger. When it returns, the verdict counts for all later ones."""
    run.record_verdict({"public": public.model_dump(mode="json"), "verdict": verdict.model_dump(mode="json")})


def confidence_of_next(earlier: Sequence[PastVerdict], audited: bool) -> float:
    """The confidence of the finite-sample audits of the next verdict, 1 − β/2^j for the j-th.

    Args:
        earlier: the verdicts so far.
        audited: whether it makes audits.

    Raises:
        InputError: where there were too many verdicts for another one with audits.
    """
    if audited and len(earlier) >= MOST:
        raise InputError(
            f"this run has {len(earlier)} verdicts. All audits of a run share one probability of error, so another one "
            "could show nothing; read the report that is there"
        )
    return 1 - ALLOWED_ERROR / 2.0 ** (min(len(earlier), MOST) + 1)


def bounds_of(earlier: Iterable[PastVerdict]) -> list[Bound]:
    """The lower bounds of all audits so far."""
    return [bound for past in earlier for audit in past.audits for bound in audit.bounds]


def distinct(bounds: Iterable[Bound]) -> list[Bound]:
    """The bounds in their order, equal ones once."""
    found: list[Bound] = []
    for bound in bounds:
        if bound not in found:
            found.append(bound)
    return found
