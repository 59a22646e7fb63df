"""The decode loop of private inference: slots in parallel, one ledger transaction per token.

Slots are decoded in groups that fit into memory. One step gives every slot of a group its next token: the step is
charged for all of them, sampled, and committed together with the charge of the next step. A step that an interrupted
call committed is replayed: the model is fed the committed tokens, and nothing is sampled.

The ledger is written here. Slots are decoded where the executor says, a part of a group on each worker
(`slot_decoder`), so that the ledger does not depend on their number.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from dp_accounting import dp_event

from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, Outcome
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.arrays import Bools, Integers
from dpassay.base.progress import Step, of_part
from dpassay.data.records import Record
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, Pending, forget
from dpassay.mechanisms.models.end_rule import EndRule
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_reference import ModelReference
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives import counts as noise
from dpassay.mechanisms.primitives.charged import RunMismatchError as RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.slot_decoder import Decoded, Job, Order, SlotText, Sources, bits_of, decode
from dpassay.mechanisms.private_inference.slot_inputs import SlotInput, SlotInputs, in_parts
from dpassay.mechanisms.private_inference.transcripts import Document, Generation, Observer, PartObserver, Transcript

INPUTS, CLUSTERS, ASSIGNMENT, COUNTS, IDLE, TOKENS = "inputs", "clusters", "assignment", "counts", "idle", "tokens"
"""Stages of a run in its ledger. `IDLE` charges for slots that the noisy counts exclude."""


_CHUNK = 16  # committed steps that a decoder catches up with at a time


class _Writer(SlotText):
    """The state of one slot during generation, in the coordinator."""

    def __init__(self, item: SlotInput) -> None:
        super().__init__()
        self.slot, self.records = item.slot, item.records
        self.source: int | None = None
        self.sources: list[int | None] = []
        self.positions: list[int] = []

    def append(self, token: int, rule: EndRule) -> bool:
        self.positions.append(len(self.current))
        return super().append(token, rule)


class _Portion:
    """Some slots of a group, which one decoder decodes, and what was committed of them."""

    def __init__(self, name: str, job: Job, items: Sequence[SlotInput]) -> None:
        self.name, self.items = name, tuple(items)
        self._job = job
        self._tokens: list[tuple[int, ...]] = []
        self._sources: list[Sources] = []
        self._sent: int | None = None  # steps that the decoder knows; None if there is none

    def commit(self, tokens: Sequence[int], sources: Sequence[int | None]) -> None:
        self._tokens.append(tuple(tokens))
        self._sources.append(tuple(sources))

    @property
    def behind(self) -> int:
        """The number of committed steps that the decoder does not know."""
        return len(self._tokens) - (self._sent or 0)

    def submit(self, executor: Executor, sources: Sequence[int | None] = (), **what: bool) -> Pending[Decoded]:
        """Sends at most a chunk of committed steps; with all of them, what else is to be done."""
        first = self._sent or 0
        last = min(first + _CHUNK, len(self._tokens))
        whole = last == len(self._tokens)
        order = Order(
            name=self.name,
            first=first,
            tokens=tuple(self._tokens[first:last]),
            sources=(*self._sources[first:last], tuple(sources)),
            draw=whole and what.get("draw", False),
            ends=whole and what.get("ends", False),
            begin=None if self._sent is not None else (self._job, self.items),
        )
        self._sent = last
        return executor.submit(decode, order, near=self.name)

    def lost(self) -> None:
        """The decoder is gone, and begins anew."""
        self._sent = None


class Loop:
    """One call of `generate`."""

    def __init__(
        self, inputs: SlotInputs, run: Run, source: Source, observers: Sequence[Observer], executor: Executor
    ) -> None:
        self.inputs = inputs
        self.mechanism = inputs.mechanism
        self.run = run
        self.source = source
        self.observers = observers
        self.executor = executor
        self._name = secrets.token_hex(8)
        here = executor is THIS_PROCESS
        self._model = inputs.model if here else ModelReference.of(inputs.model)
        self._bits: str = executor.submit(bits_of, self._model, inputs.row_plan).result()
        self._moved = False  # whether the run began where other bits are computed
        self.rule = self.mechanism.end_rule(inputs.model)
        self.event = self.mechanism.token_event()
        shape = (self.mechanism.total_slots, self.mechanism.tokens, 3)
        self.costs = np.full(shape, np.nan) if self.mechanism.aggregate == "median" else None

    def generate(self, rows_at_once: int | None, progress: Callable[[int, int], None] | None) -> Generation:
        """Generates all slots, or those that an interrupted call left."""
        mechanism, total = self.mechanism, self.mechanism.total_slots
        charged.check_run(self.run, mechanism.plan(), self.source)
        limit, parts = self._same_inputs(rows_at_once)
        clusters = self._released_cluster_counts()
        counts = self._released_counts()
        running = np.ones(total, dtype=bool) if counts is None else counts >= (mechanism.slot_threshold or 0)
        self._charge_idle([slot for slot in range(total) if not running[slot]])
        groups = self.inputs.groups([slot for slot in range(total) if running[slot]], limit, parts=parts)
        writers: dict[int, _Writer] = {}
        for number, group in enumerate(groups):
            done = of_part(progress, number * mechanism.tokens, len(groups) * mechanism.tokens)
            items = [self.inputs.slot(slot) for slot in group]
            writers |= {writer.slot: writer for writer in self._write(number, items, done)}
        return self._generation(writers, running, counts, clusters)

    def _same_inputs(self, rows_at_once: int | None) -> tuple[int | None, int]:
        """Commits the digest of the inputs, so that only the same run can be resumed.

        Returns:
            The rows that a process holds at once, and for how many processes groups of slots were made.
        """
        plan = self.inputs.row_plan
        value: dict[str, Any] = {"digest": self.inputs.digest(), "rows_at_once": rows_at_once, "rows": plan.to_json()}
        if plan.exact:
            value["bits"] = self._bits
        if self.executor.workers > 1:
            value["parts"] = self.executor.workers
        known = charged.committed_value(self.run, INPUTS, value)
        if known["digest"] != value["digest"]:
            raise charged.other_inputs("records, another model, key or parameters")
        self._moved = known.get("bits", self._bits) != self._bits  # earlier versions did not have it
        return known["rows_at_once"], known.get("parts", 1)

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

    def _write(self, number: int, group: list[SlotInput], progress: Step | None) -> list[_Writer]:
        """Generates all tokens of a group of slots."""
        tokens = self.mechanism.tokens
        writers = [_Writer(item) for item in group]
        keys = [f"{TOKENS}/{number * tokens + step}" for step in range(tokens)]
        # Groups that an earlier call finished are not computed again, unless there are observers.
        needed = bool(self.observers) or self.run.outcome(keys[-1]) is None
        parts = self._parts(number, group) if needed else []
        try:
            self._steps(number, group, writers, keys, parts, progress)
            for reply in self._all(parts, ends=True):
                self._observed(reply)
        finally:
            forget(*(part.name for part in parts))
        return writers

    def _steps(
        self,
        number: int,
        group: list[SlotInput],
        writers: list[_Writer],
        keys: list[str],
        parts: list[_Portion],
        progress: Step | None,
    ) -> None:
        tokens, slots = len(keys), [item.slot for item in group]
        for step, key in enumerate(keys):
            outcome = self.run.outcome(key)
            if outcome is None:
                if self._moved:
                    raise RunMismatchError(
                        "other logits are computed here, in some bits, than where the run began: the kind of machine, "
                        f"the packages or the number of threads differ; {charged.ELSEWHERE}"
                    )
                if not self.run.charged(key):
                    self.run.step(charge=self._charge(key, TOKENS, slots, paid=number > 0))
                self._begin_documents(group, writers)
                drawn = self._all(parts, [writer.source for writer in writers], draw=True)
                following = None
                if step + 1 < tokens:
                    following = self._charge(keys[step + 1], TOKENS, slots, paid=number > 0)
                outcome = self._commit_step(key, writers, drawn, following)
            self._replay_sources(writers, outcome)
            self._finish_step(step, writers, outcome, parts)
            if progress is not None:
                progress(step + 1, tokens)

    def _parts(self, number: int, group: list[SlotInput]) -> list[_Portion]:
        """The slots of a group, in as many parts of about as many rows as there are workers."""
        here = self.executor is THIS_PROCESS
        parts = []
        for index, items in enumerate(in_parts(group, [len(item.rows) for item in group], self.executor.workers)):
            observers = tuple(self.observers) if here else tuple(observer.part() for observer in self._partial())
            job = Job(self.mechanism, self._model, self.inputs.row_plan, self._bits, self.source, observers)
            parts.append(_Portion(f"{self._name} {number} {index}", job, items))
        return parts

    def _all(self, parts: list[_Portion], sources: Sequence[int | None] = (), **what: bool) -> list[Decoded]:
        """What the decoders of all parts reply, once they know all that was committed."""
        own, start = [], 0
        for part in parts:
            own.append(sources[start : start + len(part.items)])
            start += len(part.items)
        replies: dict[str, Decoded] = {}
        while waiting := [pair for pair in zip(parts, own, strict=True) if pair[0].name not in replies]:
            pending = [(part, part.submit(self.executor, given, **what)) for part, given in waiting]
            for part, piece in pending:
                reply = piece.result()
                if reply.lost:
                    part.lost()
                elif not part.behind:
                    replies[part.name] = reply
        return [replies[part.name] for part in parts]

    def _observed(self, reply: Decoded) -> None:
        """Takes what the observers of a part saw, if they were elsewhere."""
        if self.executor is not THIS_PROCESS:
            for observer, part in zip(self._partial(), reply.observers, strict=True):
                observer.merge(cast("PartObserver", part))

    def _partial(self) -> list[PartObserver]:
        """The observers, which see some of the slots in each process."""
        return [cast("PartObserver", observer) for observer in self.observers]

    def _begin_documents(self, group: list[SlotInput], writers: list[_Writer]) -> None:
        """Without protection, chooses the record from which each new document is generated."""
        if self.mechanism.aggregate != "none":
            return
        for item, writer in zip(group, writers, strict=True):
            if not writer.current:
                size = len(item.contexts)
                source = self.source.at(f"document {writer.slot} {writer.document}")
                writer.source = source.below(size) if size else None

    def _replay_sources(self, writers: list[_Writer], outcome: Outcome) -> None:
        if self.mechanism.aggregate == "none":
            for writer, source in zip(writers, outcome.value["sources"], strict=True):
                writer.source = source

    def _commit_step(self, key: str, writers: list[_Writer], drawn: list[Decoded], following: Charge | None) -> Outcome:
        """Commits the tokens of all slots with their realised costs, and charges the next step.

        Returns:
            The committed outcome, which is another process's if that committed first.
        """
        value: dict[str, Any] = {"tokens": [token for reply in drawn for token in reply.tokens]}
        realised: dict[str, list[float]] | None = None
        if self.mechanism.aggregate == "none":
            value["sources"] = [writer.source for writer in writers]
        if self.costs is not None:
            value["costs"] = [list(cost) for reply in drawn for cost in reply.costs or ()]
            realised = {}
            for writer, costs in zip(writers, value["costs"], strict=True):
                part = realised.setdefault(self._part(writer.slot), [0.0, 0.0, 0.0])
                # Rounding up: one step covers the rounding of each addition.
                part[:] = [np.nextafter(a + b, np.inf).item() if a else b for a, b in zip(part, costs, strict=True)]
        commit = Commit(key=key, value=value, realised=realised)
        try:
            self.run.step(commit=commit, charge=following)
        except AlreadyCommitted as earlier:
            return earlier.outcome
        return Outcome.from_json(commit.to_json())

    def _finish_step(self, step: int, writers: list[_Writer], outcome: Outcome, parts: list[_Portion]) -> None:
        """Appends the committed tokens to their documents, and notes them for the decoders."""
        tokens: list[int] = outcome.value["tokens"]
        start = 0
        for part in parts:
            end = start + len(part.items)
            part.commit(tokens[start:end], [writer.source for writer in writers[start:end]])
            start = end
        if any(part.behind >= _CHUNK for part in parts):  # of a run that is resumed
            self._all(parts)
        for index, (writer, token) in enumerate(zip(writers, tokens, strict=True)):
            if self.costs is not None:
                self.costs[writer.slot, step] = outcome.value["costs"][index]
            if not writer.current:
                writer.sources.append(None if writer.source is None else writer.records[writer.source])
            writer.append(token, self.rule)

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
            cut=self.inputs.cut,
            slot_sizes=self.inputs.batches.sizes,
            released_counts=counts,
            token_costs=self.costs,
            positions=positions,
            row_plan=self.inputs.row_plan,
            row_difference=0.0 if self.inputs.row_plan.exact else self.inputs.model.row_difference,
        )

    def documents(self, writer: _Writer) -> Iterator[Document]:
        slot = writer.slot
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
    executor: Executor = THIS_PROCESS,
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
        executor: where slots are decoded. Its workers load the model from the files that this process loaded it from;
            observers must then be `PartObserver`. A run may be resumed elsewhere than it began.

    Raises:
        ValueError: if records, model or key are invalid, or differ from those of the interrupted run, or an observer
            is not a `PartObserver` where it must be.
        InputError: if a worker has another model.
    """
    if rows_at_once is not None:
        validate.integer(minimum=1, rows_at_once=rows_at_once)
    if executor is not THIS_PROCESS and not all(hasattr(observer, "part") for observer in observers):
        raise ValueError("an observer cannot be divided among workers; run in one process, or without it")
    inputs = SlotInputs(mechanism, records, model, key, executor=executor)
    return Loop(inputs, run, source, observers, executor).generate(rows_at_once, progress)
