"""The decode loop of private inference: slots in parallel, one ledger transaction per token.

Slots are decoded in groups that fit into memory. One step gives every slot of a group its next token: the step is
charged for all of them, sampled, and committed together with the charge of the next step. A step that an interrupted
call committed is replayed: the model is fed the committed tokens, and nothing is sampled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from dp_accounting import dp_event

from dpassay.accounting.ex_post.medians import Cost
from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, Outcome
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.arrays import Bools, Integers
from dpassay.base.progress import Step, of_part
from dpassay.data.records import Record
from dpassay.mechanisms.models.end_rule import EndRule
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives import counts as noise
from dpassay.mechanisms.primitives.charged import RunMismatchError as RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.aggregation import Aggregate
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.slot_inputs import SlotInput, SlotInputs, SlotRows
from dpassay.mechanisms.private_inference.transcripts import Document, Generation, Observer, Transcript

INPUTS, CLUSTERS, ASSIGNMENT, COUNTS, IDLE, TOKENS = "inputs", "clusters", "assignment", "counts", "idle", "tokens"
"""Stages of a run in its ledger. `IDLE` charges for slots that the noisy counts exclude."""


_Map = Callable[[Callable[..., Any], Any, Any, Any], Iterator[Any]]


@dataclass(slots=True)
class _Writer:
    """The state of one slot during generation."""

    item: SlotInput
    tokens: list[int] = field(default_factory=list)
    current: list[int] = field(default_factory=list)
    document: int = 0
    source: int | None = None
    sources: list[int | None] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def append(self, token: int, rule: EndRule) -> bool:
        """Appends the next token; returns whether its document ended."""
        self.positions.append(len(self.current))
        self.tokens.append(token)
        self.current.append(token)
        if not rule.ended(self.current):
            return False
        self.document += 1
        self.current = []
        return True


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A slot's token, the distribution it was sampled from, and its cost."""

    token: int
    law: Aggregate
    cost: Cost | None


class Loop:
    """One call of `generate`."""

    def __init__(self, inputs: SlotInputs, run: Run, source: Source, observers: Sequence[Observer]) -> None:
        self.inputs = inputs
        self.mechanism = inputs.mechanism
        self.run = run
        self.source = source
        self.observers = observers
        self.rule = self.mechanism.end_rule(inputs.model)
        self.event = self.mechanism.token_event()
        shape = (self.mechanism.total_slots, self.mechanism.tokens, 3)
        self.costs = np.full(shape, np.nan) if self.mechanism.aggregate == "median" else None

    def generate(self, rows_at_once: int | None, progress: Callable[[int, int], None] | None) -> Generation:
        """Generates all slots, or those that an interrupted call left."""
        mechanism, total = self.mechanism, self.mechanism.total_slots
        charged.check_run(self.run, mechanism.plan(), self.source)
        limit = self._same_inputs(rows_at_once)
        clusters = self._released_cluster_counts()
        counts = self._released_counts()
        running = np.ones(total, dtype=bool) if counts is None else counts >= (mechanism.slot_threshold or 0)
        self._charge_idle([slot for slot in range(total) if not running[slot]])
        groups = self.inputs.groups([slot for slot in range(total) if running[slot]], limit)
        writers: dict[int, _Writer] = {}
        with _mapper(self.source) as spread:
            for number, group in enumerate(groups):
                done = of_part(progress, number * mechanism.tokens, len(groups) * mechanism.tokens)
                items = [self.inputs.slot(slot) for slot in group]
                writers |= {w.item.slot: w for w in self._write(number, items, spread, done)}
        return self._generation(writers, running, counts, clusters)

    def _same_inputs(self, rows_at_once: int | None) -> int | None:
        """Commits the digest of the inputs, so that only the same run can be resumed; returns the rows held at once."""
        rows = self.inputs.row_plan.to_json()
        value = {"digest": self.inputs.digest(), "rows_at_once": rows_at_once, "rows": rows}
        known = charged.committed_value(self.run, INPUTS, value)
        if known["digest"] != value["digest"]:
            raise charged.other_inputs("records, another model, key or parameters")
        at_once: int | None = known["rows_at_once"]
        return at_once

    def _released_cluster_counts(self) -> tuple[tuple[int, ...], ...] | None:
        """The noisy number of units of each label and centre, which determines the slots of the records."""
        mechanism = self.mechanism
        if mechanism.centres is None:
            return None
        counts = self._noisy(CLUSTERS, mechanism.cluster_count_epsilon, self.inputs.cluster_units)
        released = tuple(map(tuple, counts.reshape(max(1, len(mechanism.labels)), -1).tolist()))
        self.inputs.arrange(released)
        self._same_assignment()
        return released

    def _same_assignment(self) -> None:
        """Commits the assignment of records to slots, since distances to centres are computed again on resumption.

        Another build of the numerical libraries can round a vector differently, which moves a record next to a border.
        """
        mismatch = RunMismatchError(
            "records fall into other clusters than in the interrupted run, although they are the same: "
            f"{charged.OTHER_VECTORS}"
        )
        charged.note(self.run, ASSIGNMENT, self.inputs.assignment_digest(), mismatch)

    def _released_counts(self) -> Integers | None:
        """The noisy number of records (or users) of each slot."""
        mechanism = self.mechanism
        if mechanism.slot_threshold is None:
            return None
        return self._noisy(COUNTS, mechanism.slot_count_epsilon, lambda: self.inputs.batches.units)

    def _noisy(self, key: str, epsilon: float, units: Callable[[], Integers]) -> Integers:
        """Noisy counts of disjoint cells, flattened; charged and committed before they are used."""
        adjacency = self.mechanism.adjacency

        def draw() -> list[int]:
            exact = units().ravel()
            counts: list[int] = noise.noisy_counts(
                exact, epsilon=epsilon, adjacency=adjacency, source=self.source
            ).tolist()
            return counts

        charge = Charge(key=key, stage=key, event=noise.count_event(epsilon, adjacency))
        return np.array(charged.released_value(self.run, charge, draw), dtype=np.int64)

    def _charge_idle(self, slots: list[int]) -> None:
        """Charges slots that do not run as if they did, so that the charge does not depend on the counts."""
        if slots and self.run.outcome(IDLE) is None:
            paid = len(slots) < self.mechanism.total_slots
            charged.commit(self.run, self._charge(IDLE, IDLE, slots, self.mechanism.tokens, paid=paid), None)

    def _charge(self, key: str, stage: str, slots: Sequence[int], times: int = 1, *, paid: bool = False) -> Charge:
        """The charge of `times` tokens in each of some slots.

        If one token of all slots is one event, the first group of slots charges it; for the other groups (`paid`) the
        step is recorded with an event of no cost.
        """
        if self.mechanism.charges_jointly:
            event = dp_event.NoOpDpEvent() if paid else self.event
            return Charge(key=key, stage=stage, event=event, counts=(times,) if times > 1 else None)
        parts: dict[str, int] = {}
        for slot in slots:
            parts[self._part(slot)] = parts.get(self._part(slot), 0) + times
        return Charge(
            key=key,
            stage=stage,
            event=self.event,
            partition="slots" if self.mechanism.variant == "sound" else "labels",
            parts=tuple(parts),
            counts=None if set(parts.values()) == {1} else tuple(parts.values()),
        )

    def _part(self, slot: int) -> str:
        """The part of the data that a slot's tokens are charged to; as published, all slots of its label."""
        return f"slot-{slot}" if self.mechanism.variant == "sound" else f"label-{slot // self.mechanism.slots}"

    def _write(self, number: int, group: list[SlotInput], spread: _Map, progress: Step | None) -> list[_Writer]:
        """Generates all tokens of a group of slots."""
        tokens = self.mechanism.tokens
        writers = [_Writer(item) for item in group]
        keys = [f"{TOKENS}/{number * tokens + step}" for step in range(tokens)]
        slots = [item.slot for item in group]
        # Groups that an earlier call finished are not computed again, unless there are observers.
        needed = bool(self.observers) or self.run.outcome(keys[-1]) is None
        rows = SlotRows(self.inputs, group) if needed else None
        for step, key in enumerate(keys):
            outcome = self.run.outcome(key)
            if outcome is None:
                if not self.run.charged(key):
                    self.run.step(charge=self._charge(key, TOKENS, slots, paid=number > 0))
                self._begin_documents(writers)
            else:
                self._replay_sources(writers, outcome)
            laws = None if rows is None else self._laws(writers, rows, outcome, spread)
            if outcome is None:
                assert rows is not None
                assert laws is not None
                following = None
                if step + 1 < tokens:
                    following = self._charge(keys[step + 1], TOKENS, slots, paid=number > 0)
                outcome, first = self._commit_step(key, writers, laws, following)
                if not first:  # tokens, and without protection sources, are those that the other process committed
                    self._replay_sources(writers, outcome)
                    laws = self._laws(writers, rows, outcome, spread)
            self._finish_step(step, writers, outcome, laws, rows)
            laws = None  # they hold the logits, which need not be in memory during the next step
            if progress is not None:
                progress(step + 1, tokens)
        for writer in writers:  # release the contexts of the slots after their group
            writer.item = SlotInput(writer.item.slot, (), (), None)
        return writers

    def _begin_documents(self, writers: list[_Writer]) -> None:
        """Without protection, chooses the record from which each new document is generated."""
        if self.mechanism.aggregate != "none":
            return
        for writer in writers:
            if not writer.current:
                size = len(writer.item.contexts)
                writer.source = self.source.below(size) if size else None

    def _replay_sources(self, writers: list[_Writer], outcome: Outcome) -> None:
        if self.mechanism.aggregate == "none":
            for writer, source in zip(writers, outcome.value["sources"], strict=True):
                writer.source = source

    def _laws(self, writers: list[_Writer], rows: SlotRows, outcome: Outcome | None, spread: _Map) -> list[_Drawn]:
        """The distribution and token of every slot: the committed token, or a new sample."""
        tokens = [None] * len(writers) if outcome is None else outcome.value["tokens"]
        return list(spread(self._draw, writers, rows.logits(), tokens))

    def _draw(self, writer: _Writer, logits: torch.Tensor, committed: int | None) -> _Drawn:
        law = self.inputs.aggregate(writer.item, logits, writer.source)
        token = law.draw(self.source) if committed is None else committed
        if law.column(token) is None:
            raise charged.other_logits()
        if self.costs is None or committed is not None:
            return _Drawn(token, law, None)
        replaced, rounding = self.mechanism.replaces_rows, self.mechanism.rounding
        cost = aggregation.median_cost(law, token, replaced=replaced, rounding=rounding)
        if self.mechanism.shifts_rows:  # no realised cost covers a batch that may change in every row
            cost = Cost(self.event.range, self.event.range, cost.gamma)
        if self.mechanism.center is not None:  # γ, unlike γ*, can exceed what a token of centred rows costs at most
            cost = cost._replace(gamma=min(cost.gamma, self.event.range))
        return _Drawn(token, law, cost)

    def _commit_step(
        self, key: str, writers: list[_Writer], drawn: list[_Drawn], following: Charge | None
    ) -> tuple[Outcome, bool]:
        """Commits the tokens of all slots with their realised costs, and charges the next step.

        Returns:
            The committed outcome, and whether this process committed it: another one may have been first.
        """
        value: dict[str, Any] = {"tokens": [item.token for item in drawn]}
        realised: dict[str, list[float]] | None = None
        if self.mechanism.aggregate == "none":
            value["sources"] = [writer.source for writer in writers]
        if self.costs is not None:
            value["costs"] = [list(item.cost) for item in drawn if item.cost is not None]
            realised = {}
            for writer, costs in zip(writers, value["costs"], strict=True):
                part = realised.setdefault(self._part(writer.item.slot), [0.0, 0.0, 0.0])
                # Rounding up: one step covers the rounding of each addition.
                part[:] = [np.nextafter(a + b, np.inf).item() if a else b for a, b in zip(part, costs, strict=True)]
        commit = Commit(key=key, value=value, realised=realised)
        try:
            self.run.step(commit=commit, charge=following)
        except AlreadyCommitted as earlier:
            return earlier.outcome, False
        return Outcome.from_json(commit.to_json()), True

    def _finish_step(
        self, step: int, writers: list[_Writer], outcome: Outcome, drawn: list[_Drawn] | None, rows: SlotRows | None
    ) -> None:
        """Processes the committed tokens: passes them to the observers, and advances the documents and the model."""
        tokens: list[int] = outcome.value["tokens"]
        for index, (writer, token) in enumerate(zip(writers, tokens, strict=True)):
            if self.costs is not None:
                self.costs[writer.item.slot, step] = outcome.value["costs"][index]
            if drawn is not None:
                self._show(writer, token, drawn[index].law)
            if not writer.current:
                writer.sources.append(None if writer.source is None else writer.item.records[writer.source])
        ended = [writer.append(token, self.rule) for writer, token in zip(writers, tokens, strict=True)]
        if rows is not None:
            rows.advance(tokens, ended)

    def _show(self, writer: _Writer, token: int, law: Aggregate) -> None:
        clipped, column = law.clipped if self.observers else None, law.column(token)
        assert column is not None
        for observer in self.observers:
            assert clipped is not None
            observer.step(
                slot=writer.item.slot,
                records=writer.item.records,
                clipped=clipped,
                public=law.public,
                medians=law.medians,
                log_probability=law.log_probability(token),
                token=column,
                document=writer.document,
                position=len(writer.current),
            )

    def _generation(
        self,
        writers: dict[int, _Writer],
        running: Bools,
        counts: Integers | None,
        clusters: tuple[tuple[int, ...], ...] | None,
    ) -> Generation:
        slots = range(self.mechanism.total_slots)
        positions = np.full((len(slots), self.mechanism.tokens), -1, dtype=np.int64)
        for slot, writer in writers.items():
            positions[slot] = writer.positions
        return Generation(
            documents=tuple(document for slot in sorted(writers) for document in self.documents(writers[slot])),
            transcript=Transcript(
                tuple(tuple(writers[slot].tokens) if slot in writers else () for slot in slots),
                tuple(bool(runs) for runs in running),
                clusters,
            ),
            assignment=self.inputs.batches.assignment,
            slot_sizes=self.inputs.batches.sizes,
            released_counts=counts,
            token_costs=self.costs,
            positions=positions,
            row_plan=self.inputs.row_plan,
            row_difference=0.0 if self.inputs.row_plan.exact else self.inputs.model.row_difference,
        )

    def documents(self, writer: _Writer) -> Iterator[Document]:
        slot = writer.item.slot
        for index, tokens in enumerate(self.rule.split(writer.tokens)):
            yield Document(
                slot=slot,
                label=self.mechanism.label_of(slot),
                index=index,
                text=self.mechanism.prefix + self.rule.text(tokens),
                tokens=tokens,
                complete=self.rule.stopped(tokens),
                source=writer.sources[index],
            )


@contextmanager
def _mapper(source: Source) -> Iterator[_Map]:
    """`map` over slots, on all cores; sequential for a recorded source, whose draws depend on the order."""
    if source.name != "os":
        yield map
        return
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield pool.map


def generate(
    mechanism: PrivateInference,
    records: Sequence[Record],
    model: LanguageModel,
    run: Run,
    *,
    key: bytes,
    observers: Sequence[Observer] = (),
    progress: Callable[[int, int], None] | None = None,
    source: Source = OS_ENTROPY,
    rows_at_once: int | None = None,
) -> Generation:
    """Generates the synthetic documents of a mechanism, or resumes an interrupted run.

    Args:
        mechanism: the parameters.
        records: private.
        model: the language model.
        run: of a ledger, begun with `plan()`. Every step is charged before it is sampled, and only committed values
            are used; the caller finishes the run.
        key: of the batching, 16 to 64 bytes, drawn independently of the data; it may be published.
        observers: receive every token, including those of an interrupted call.
        progress: called with the number of steps done and the total.
        source: of the noise. If it is recorded, the run must say so: ``run.about["noise"] == "recorded"``.
        rows_at_once: number of contexts in memory at once; by default as many as fit into 4 GiB.

    Raises:
        ValueError: if records, model or key are invalid, or differ from those of the interrupted run.
    """
    if rows_at_once is not None:
        validate.integer(minimum=1, rows_at_once=rows_at_once)
    return Loop(SlotInputs(mechanism, records, model, key), run, source, observers).generate(rows_at_once, progress)
