"""How generators use a run of a ledger: charge, commit, replay, and refuse to resume a different run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, Json, Outcome
from dpassay.accounting.ledger.run import Run
from dpassay.base.errors import DpassayError
from dpassay.mechanisms.primitives.randomness import Source


class RunMismatchError(DpassayError):
    """An interrupted run was begun with other records, model, key or parameters. One line, which names no record."""


ELSEWHERE = "resume where the run began, or start a new one in a new folder"
OTHER_VECTORS = f"this machine or its libraries compute other vectors; {ELSEWHERE}"


def other_logits() -> RunMismatchError:
    """The error for a run whose tokens were drawn from other logits than are computed now."""
    return RunMismatchError(
        "the run drew a token that top_k leaves out now: this machine or its libraries compute other logits; "
        f"{ELSEWHERE}"
    )


def other_inputs(what: str) -> RunMismatchError:
    """The error for a run that is resumed with other inputs."""
    return RunMismatchError(
        f"the interrupted run had other {what}; it can be resumed with the same ones only: start a new one in a new "
        "folder"
    )


def check_run(run: Run, plan: DpEvent, source: Source) -> None:
    """Checks that a run of a ledger was begun for this plan, in canonical form, and this source of noise: if it is
    recorded, the run must say so: ``run.about["noise"] == "recorded"``.

    Raises:
        ValueError: if it was begun for another plan or source.
    """
    if run.plan != plan:
        raise ValueError("the ledger's run was begun with another plan; begin it with this mechanism's plan()")
    noise = run.about.get("noise", "os")
    if noise != source.name:
        raise ValueError(f"the ledger's run says noise {noise!r}, but the source of randomness is {source.name!r}")


def commit(run: Run, charge: Charge, value: Json) -> Outcome:
    """Charges and commits in one step; returns what is committed, which may be another process's value."""
    run.step(charge=charge)
    return _settled(run, charge.key, value)


def _settled(run: Run, key: str, value: Json) -> Outcome:
    """Commits the value of a charged step; returns the earlier value if another process committed one first."""
    made = Commit(key=key, value=value)
    try:
        run.step(commit=made)
    except AlreadyCommitted as earlier:
        return earlier.outcome
    return Outcome.from_json(made.to_json())


def committed_value(run: Run, key: str, value: Json) -> Any:
    """The committed value of a step without privacy cost, such as a digest of the inputs; commits `value` if none."""
    known = run.outcome(key)
    if known is None:
        known = commit(run, Charge(key=key, stage=key, event=dp_event.NoOpDpEvent()), value)
    return known.value


def note(run: Run, key: str, value: Json, mismatch: RunMismatchError) -> None:
    """Commits a value without privacy cost, and raises `mismatch` if the interrupted run committed another one."""
    if committed_value(run, key, value) != value:
        raise mismatch


def released_value(run: Run, charge: Charge, draw: Callable[[], Json]) -> Any:
    """The committed value of a step; if there is none, charges the step, draws the value and commits it."""
    known = run.outcome(charge.key)
    if known is None:
        run.step(charge=charge)
        known = _settled(run, charge.key, draw())
    return known.value
