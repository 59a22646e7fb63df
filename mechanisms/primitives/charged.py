"""What every generator does with its run in a ledger: charge, commit, replay, and refuse what is another run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dp_accounting import DpEvent, dp_event

from cupel.accounting.errors import CupelError
from cupel.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, Json, Outcome
from cupel.accounting.ledger.run import Run
from cupel.mechanisms.primitives.randomness import Source


class OtherRunError(CupelError):
    """An interrupted run cannot go on with these records, model, key or parameters. One line that names no record."""


def check_run(run: Run, plan: DpEvent, source: Source) -> None:
    """That a run was begun for this plan and this source of noise.

    Args:
        run: of a ledger.
        plan: what the mechanism will charge, in the ledger's canonical form.
        source: of the noise; a run with a recorded one must say so: ``run.about["noise"] == "recorded"``.

    Raises:
        ValueError: where it was not.
    """
    if run.plan != plan:
        raise ValueError("the ledger's run was begun with another plan; begin it with this mechanism's plan()")
    told = run.about.get("noise", "os")
    if told != source.name:
        raise ValueError(f"the ledger's run says noise {told!r}, but the source of randomness is {source.name!r}")


def commit(run: Run, charge: Charge, value: Json) -> Outcome:
    """Charges and commits at once; the committed value, which may be another process's."""
    run.step(charge=charge)
    return _settled(run, charge.key, value)


def _settled(run: Run, key: str, value: Json) -> Outcome:
    """Commits the value of a step that was charged; the first one's, where another process did so."""
    made = Commit(key=key, value=value)
    try:
        run.step(commit=made)
    except AlreadyCommitted as earlier:
        return earlier.outcome
    return Outcome.from_json(made.to_json())


def noted(run: Run, key: str, value: Json) -> Any:
    """A value that costs nothing, such as a digest of what is read: the committed one, or `value`, committed now."""
    known = run.outcome(key)
    if known is None:
        known = commit(run, Charge(key=key, stage=key, event=dp_event.NoOpDpEvent()), value)
    return known.value


def released(run: Run, charge: Charge, draw: Callable[[], Json]) -> Any:
    """The value of a step: the committed one, or one that is drawn after it was charged and then committed."""
    known = run.outcome(charge.key)
    if known is None:
        run.step(charge=charge)
        known = _settled(run, charge.key, draw())
    return known.value
