"""What a ledger says about the bounds on its runs, besides events: assumptions, and why bounds are estimates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cupel.accounting.interop.conditions import Condition, Unstated
from cupel.accounting.ledger.ledger import Ledger
from cupel.accounting.ledger.run import Run
from cupel.mechanisms.primitives.randomness import OS_ENTROPY

ASSUMPTIONS = "assumptions"
"""The key of a run's description with the assumptions under which its events are what it cost."""

ESTIMATES = "estimates"
"""The key of a run's description with the reasons why bounds on it are estimates."""

NEWEST = "The ledger is the newest one of its runs; no earlier head of it is known here."
"""The assumption on a ledger without an anchor."""

EXACT = "exact"
"""The key of a run's description that says whether its events are what it cost, and not more."""


UNSTATED = "unstated"
"""The key of a run's description with the conditions that nobody states: names and sentences."""


def left_open(ledger: Ledger) -> list[Unstated]:
    """The assumptions on a ledger's runs that nobody states."""
    found = [
        Unstated(str(name), str(sentence))
        for run in ledger.runs()
        for name, sentence in ledger.run(run).about.get(UNSTATED, ())
    ]
    return [*found, *([] if ledger.anchored else [Unstated(Condition.NEWEST, NEWEST)])]


def is_exact(ledger: Ledger) -> bool:
    """Whether the events of all runs are what they cost in the worst case, and not more."""
    return all(ledger.run(name).about.get(EXACT, True) for name in ledger.runs())


def inherited_assumptions(ledger: Ledger) -> list[str]:
    """The assumptions under which the events of a ledger's runs are what they cost."""
    return [str(one) for name in ledger.runs() for one in ledger.run(name).about.get(ASSUMPTIONS, ())]


def estimate_reasons(ledger: Ledger) -> list[str]:
    """Why bounds on a ledger's runs are estimates; empty if they are not."""
    found = []
    for name in ledger.runs():
        run = ledger.run(name)
        found += [str(one) for one in run.about.get(ESTIMATES, ())]
        if run.about.get("noise", OS_ENTROPY.name) != OS_ENTROPY.name:
            found.append(f"{ledger.path.name}: the noise of run {name!r} was recorded, so it protects nobody")
        if _without_proof(run):
            found.append(f"{ledger.path.name}: the report of run {name!r} certifies no bound")
        if not _rows_are_exact(run):
            found.append(
                f"{ledger.path.name}: the rows of run {name!r} were not verified to be computed each by itself"
            )
        if any(verdict.get("verdict", {}).get("contradictions") for verdict in run.verdicts()):
            found.append(f"{ledger.path.name}: an audit contradicted the events of run {name!r}")
        elif any(map(_is_doubted, run.verdicts())):
            found.append(
                f"{ledger.path.name}: audits of run {name!r} show more than is proven, and do not hold jointly"
            )
    return found


def _is_doubted(body: Mapping[str, Any]) -> bool:
    """Whether a claim stayed unproven though a certified bound reaches it, which only audits can do."""
    public = body.get("public") or {}
    reached = public.get("best_upper") is not None and not public.get("shortfalls")
    return body.get("verdict", {}).get("verdict") == "UNPROVEN" and reached


def _without_proof(run: Run) -> bool:
    """Whether the last report of a run has upper bounds and none that is certified."""
    for body in run.verdicts()[-1:]:
        bounds = (body.get("public") or {}).get("bounds") or []
        uppers = [bound for bound in bounds if bound.get("direction") == "upper"]
        return bool(uppers) and not any(bound.get("rigor") == "certified" for bound in uppers)
    return False


def _rows_are_exact(run: Run) -> bool:
    """Whether the run recorded that its rows were verified, or is not private inference and has no rows."""
    inputs, step = run.outcome("inputs"), run.outcome("rows")
    noted = inputs.value.get("rows") if inputs is not None and isinstance(inputs.value, dict) else None
    if step is not None and isinstance(step.value, dict):
        noted = step.value
    infers = (run.about.get("claim") or {}).get("mechanism") == "private_inference"
    rows = noted or run.about.get("rows") or {"exact": not (infers or isinstance(inputs and inputs.value, dict))}
    return bool(rows["exact"])
