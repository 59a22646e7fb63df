"""One run of a mechanism in a ledger: its two-phase steps, their replay, and its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.chain import Tally
from dpassay.accounting.ledger.entries import (
    AlreadyCommitted,
    Charge,
    Commit,
    Json,
    LedgerError,
    Outcome,
    PartCost,
    UpwardSum,
    canonical,
)
from dpassay.accounting.ledger.plan import abbreviated
from dpassay.accounting.ledger.store import Store


class Run:
    """One run of a mechanism in a ledger. Made by `Ledger.begin` and `Ledger.run`."""

    def __init__(self, store: Store, name: str, begin: Mapping[str, Any], anchor: Callable[[], None]) -> None:
        self._store = store
        self._anchor = anchor
        self._begin = begin
        self.name = name

    @property
    def plan(self) -> DpEvent:
        """The event that the run charges in all, in canonical form."""
        return events.from_json(self._begin["plan"])

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of the run's events."""
        return relation_in(self._begin)[0]

    @property
    def unit(self) -> Unit:
        """The privacy unit of the run's events."""
        return relation_in(self._begin)[1]

    @property
    def about(self) -> dict[str, Any]:
        """The public metadata of the run."""
        return dict(self._begin["about"])

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self._store.find(self.name, "finish") is not None

    def step(self, *, commit: Commit | None = None, charge: Charge | None = None) -> None:
        """Commits the outcome of an earlier charge and charges the next step, in one transaction.

        When it returns, both are on disk: the committed value may be released, and the charged step sampled. If this
        charge exists already, from this run before it was killed or from another process, it is used again.

        Raises:
            AlreadyCommitted: if the key has a committed value, which stands. Nothing was written, not even the charge.
            LedgerError: if the commit has no charge, or a realised cost outside of it; if the charge differs from the
                one of the same key; if the run is finished. Nothing was written.
        """
        if commit is None and charge is None:
            raise LedgerError("a step needs a commit, a charge or both")
        store = self._store
        with store.transaction():
            if commit is not None:
                commit.check_against(self._charge_of(commit))
                self._check_unfinished()
                store.append(self.name, "commit", commit.to_json())
            if charge is not None and not self._is_charged(charge):
                self._check_unfinished()
                store.append(self.name, "charge", charge.to_json())

    def _charge_of(self, commit: Commit) -> Charge:
        if (done := self.outcome(commit.key)) is not None:
            raise AlreadyCommitted(done)
        body = self._store.find(self.name, "charge", commit.key)
        if body is None:
            raise LedgerError(f"commit of {commit.key!r} without a charge; charge a step before it is sampled")
        return Charge.from_json(body)

    def _is_charged(self, charge: Charge) -> bool:
        known = self._store.find(self.name, "charge", charge.key)
        if known is not None and canonical(known) != canonical(charge.to_json()):
            raise LedgerError(f"{charge.key!r} was charged with another event or other parts")
        return known is not None

    def _check_unfinished(self) -> None:
        if self.finished:
            raise LedgerError(f"run {self.name!r} is finished")

    def outcome(self, key: str) -> Outcome | None:
        """The committed value of a step; None if there is none."""
        body = self._store.find(self.name, "commit", key)
        return None if body is None else Outcome.from_json(body)

    def charged(self, key: str) -> bool:
        """Whether a step was charged."""
        return self._store.find(self.name, "charge", key) is not None

    def last_committed(self, stage: str) -> int:
        """The number of committed steps ``stage/0``, ``stage/1``, … before the first that is not committed."""
        count = 0
        while self._store.find(self.name, "commit", f"{stage}/{count}") is not None:
            count += 1
        return count

    def finish(self) -> None:
        """Ends the run and anchors the ledger. A charged step that was never committed stays charged.

        Does nothing if the run is finished already.

        Raises:
            LedgerError: if the charges differ from the plan.
        """
        with self._store.transaction():
            if not self.finished:
                charged = self.event()
                if charged != self.plan:
                    raise LedgerError(f"run {self.name!r} is off its plan: {_first_difference(charged, self.plan)}")
                self._store.append(self.name, "finish", {"charged": events.to_json(charged)})
        self._anchor()

    def record_verdict(self, body: Mapping[str, Json]) -> None:
        """Appends the verdict of an assay and anchors the ledger; a run may have several verdicts.

        Args:
            body: JSON types; the name ``key`` is not allowed.

        Raises:
            LedgerError: if the run is not finished, or the body is not allowed. Nothing was written.
        """
        self._record("verdict", body)

    def verdicts(self) -> list[dict[str, Any]]:
        """The bodies of all verdicts, in the order in which they were recorded."""
        return self._recorded("verdict")

    def record_release(self, body: Mapping[str, Json]) -> None:
        """Appends a release of the run's output; a run may have several. See `record_verdict`."""
        self._record("release", body)

    def releases(self) -> list[dict[str, Any]]:
        """The bodies of all releases, in the order in which they were recorded."""
        return self._recorded("release")

    def _record(self, kind: str, body: Mapping[str, Json]) -> None:
        if not isinstance(body, Mapping) or "key" in body:
            raise LedgerError(f"a {kind} must be a JSON object without the name 'key'")
        with self._store.transaction():
            if not self.finished:
                raise LedgerError(f"run {self.name!r} is not finished; a {kind} follows the end of a run")
            self._store.append(self.name, kind, dict(body))
        self._anchor()

    def _recorded(self, kind: str) -> list[dict[str, Any]]:
        return [body for _, body in self._store.bodies(kind, self.name)]

    def event(self) -> DpEvent:
        """The composition of the charges so far; the plan, once the run is finished."""
        return tallies(self._store, self.name).get(self.name, Tally(self.name)).event()

    def realised(self) -> dict[str, PartCost]:
        """The realised cost of each part, summed and rounded up. It depends on the private data; do not release it.

        If a value was committed for an ex-post selection without a realised cost for a charged part, that part counts
        at its worst case. A step without a committed value, or with the value null, released nothing.
        """
        sums: dict[str, tuple[UpwardSum, UpwardSum, UpwardSum]] = {}
        counts: dict[str, int] = {}
        for charge, commit in self._committed():
            costs = dict(commit.realised or {})
            if isinstance(charge.event, events.ExPostSelectionDpEvent) and commit.value is not None:
                for part, times in charge.times.items():
                    costs.setdefault(part, [math.nextafter(charge.event.range * times, math.inf)] * 3)
            for part, cost in costs.items():
                own = sums.setdefault(part, (UpwardSum(), UpwardSum(), UpwardSum()))
                for total, value in zip(own, cost, strict=True):
                    total.add(value)
                counts[part] = counts.get(part, 0) + 1
        return {
            part: PartCost(minus.value(), plus.value(), published.value(), counts[part])
            for part, (minus, plus, published) in sums.items()
        }

    def _committed(self) -> Iterator[tuple[Charge, Commit]]:
        """The commits, each with its charge, one at a time."""
        tally, waiting = Tally(self.name), {}
        for kind, body in self._store.steps(self.name):
            if kind == "charge":
                waiting[body["key"]] = tally.add(body)
            else:
                yield waiting.pop(body["key"]), Commit.from_json(body)


def tallies(store: Store, run: str | None = None) -> dict[str, Tally]:
    """The charges of each run, or of one run."""
    tallies: dict[str, Tally] = {}
    for name, body in store.bodies("charge", run):
        tallies.setdefault(name, Tally(name)).add(body)
    return tallies


def relation_in(begin: Mapping[str, Any]) -> tuple[Adjacency, Unit]:
    """The adjacency and the unit in the body of a begin entry."""
    return Adjacency(begin["adjacency"]), Unit.parse(begin["unit"])


def _first_difference(charged: DpEvent, plan: DpEvent) -> str:
    """The first event whose counts differ, in one line; a parallel composition counts in each of its parts."""
    counts: dict[str, list[int]] = {}
    for side, event in enumerate((charged, plan)):
        for text, count in _counted(event):
            counts.setdefault(text, [0, 0])[side] += count
    for text, (was, planned) in counts.items():
        if was != planned:
            return f"it charged {was} of {planned} planned {abbreviated(text)}"
    return "it spread its charges over other parts or partitions than planned"


def _counted(event: DpEvent, where: str = "", times: int = 1) -> Iterator[tuple[str, int]]:
    if isinstance(event, dp_event.SelfComposedDpEvent):
        yield from _counted(event.event, where, times * event.count)
    elif isinstance(event, dp_event.ComposedDpEvent | events.ParallelDpEvent):
        inside = ", all parts taken together" if isinstance(event, events.ParallelDpEvent) else where
        for child in event.events:
            yield from _counted(child, inside, times)
    elif not isinstance(event, dp_event.NoOpDpEvent):
        yield f"{event!r}{where}", times
