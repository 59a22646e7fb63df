"""Decodes some slots of a run where the model is: in the coordinator's process, or on a worker.

A decoder holds the keys and values of its slots' rows between steps. Each order brings the tokens that were committed
since the last one, and asks for the next token of every slot. What is drawn is nothing before the coordinator commits
it: the next order says what was committed, which may be another process's draw. A worker that drew does not wait for
it: it computes the logits that follow its draw, and nothing else depends on them. A decoder that was wrong about what
is committed, or is lost with its worker, is built again from the contexts and all committed tokens.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from dpassay.accounting.ex_post.medians import Cost
from dpassay.mechanisms.compute.executor import Executor, exclusive, find, forget, keep
from dpassay.mechanisms.compute.needs import Need
from dpassay.mechanisms.compute.workers import WorkerError, name_of_worker
from dpassay.mechanisms.models.end_rule import EndRule
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_reference import ModelReference
from dpassay.mechanisms.models.row_shapes import RowPlan
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source, cores
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.aggregation import Aggregate
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.slot_inputs import SlotInput, SlotLaws, SlotRows
from dpassay.mechanisms.private_inference.transcripts import Observer

Sources = tuple[int | None, ...]
"""Without protection, for each slot, the row from which its document is generated."""

T = TypeVar("T")

_THREADS = min(8, cores())
_SHARED = 2**18  # logits of a slot from which threads pay; with fewer, they wait for each other
_ahead = ThreadPoolExecutor(1)


@dataclass(slots=True)
class SlotText:
    """What a slot wrote so far.

    Attributes:
        tokens: all of them.
        current: those of the document that is being written.
        document: its index in the slot.
    """

    tokens: list[int] = field(default_factory=list)
    current: list[int] = field(default_factory=list)
    document: int = 0

    def append(self, token: int, rule: EndRule) -> bool:
        """Appends the next token; returns whether its document ended."""
        self.tokens.append(token)
        self.current.append(token)
        if not rule.ended(self.current):
            return False
        self.document += 1
        self.current = []
        return True


@dataclass(frozen=True, slots=True)
class Job:
    """What all share that compute distributions of a run's tokens.

    Attributes:
        mechanism: the parameters.
        model: in this process, or where it is found.
        row_plan: the shapes of forward passes.
        bits: of public rows, by `bits_of`.
        source: of the noise, if tokens are drawn.
        observers: see every committed token.
    """

    mechanism: PrivateInference
    model: LanguageModel | ModelReference
    row_plan: RowPlan
    bits: str
    source: Source = OS_ENTROPY
    observers: tuple[Observer, ...] = ()

    def laws(self) -> SlotLaws:
        """The distributions of tokens, by the model of this process.

        Raises:
            WorkerError: if it has another one, or computes other bits.
        """
        if bits_of(self.model, self.row_plan) != self.bits:
            raise WorkerError(
                f"worker on {name_of_worker()}: computes other logits, in some bits, than where the run began; use "
                "machines of one kind, with the same packages and number of threads"
            )
        return SlotLaws(self.mechanism, _model_here(self.model, self.row_plan), self.row_plan)


def needed_laws(laws: SlotLaws, executor: Executor) -> Need[SlotLaws]:
    """The distributions of tokens as pieces of work need them. All workers of the executor have the model of this
    process, and compute the same bits."""

    def sent() -> tuple[str, Callable[[], SlotLaws]]:
        model = ModelReference.of(laws.model)
        job = Job(laws.mechanism, model, laws.row_plan, executor.submit(bits_of, model, laws.row_plan).result())
        about = (job.mechanism, job.model, job.row_plan.to_json(), job.bits)
        return hashlib.sha256(repr(about).encode()).hexdigest(), job.laws

    return Need("distributions of tokens", laws, sent)


def bits_of(model: LanguageModel | ModelReference, row_plan: RowPlan) -> str:
    """SHA-256 of the logits of public rows at all shapes of a run, by this process; empty if its rows are not exact.

    Which process decodes a slot follows from how many rows the slots before it have, which is private. So all that
    decode slots of a run must compute the same bits: otherwise one record would change the logits of other slots.

    Raises:
        WorkerError: if this process has another model.
    """
    if not row_plan.exact or row_plan.shapes is None:
        return ""
    here = _model_here(model, row_plan)
    each = [here.row_bits(shape) for shape in dict.fromkeys(row_plan.shapes.values())]
    return hashlib.sha256(" ".join(each).encode()).hexdigest()


def _model_here(model: LanguageModel | ModelReference, row_plan: RowPlan) -> LanguageModel:
    """The model in this process."""
    if not isinstance(model, ModelReference):
        return model
    return model.load(exact_at=set((row_plan.shapes or {}).values()) if row_plan.exact else ())


@dataclass(frozen=True, slots=True)
class Order:
    """What a decoder is to do.

    Attributes:
        name: of the decoder, different for all that ever are.
        first: the step of the first of `tokens`.
        tokens: what was committed in steps `first`, `first` + 1, …: a token of each slot.
        sources: of the same steps, and of the one that is drawn.
        draw: whether the step after them is drawn.
        ends: whether no order follows.
        begin: job and slots, if the decoder begins; it has them otherwise.
    """

    name: str
    first: int
    tokens: tuple[tuple[int, ...], ...]
    sources: tuple[Sources, ...]
    draw: bool = True
    ends: bool = False
    begin: tuple[Job, tuple[SlotInput, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder did.

    Attributes:
        lost: whether there is no such decoder here, or it does not know the tokens before `Order.first`.
        tokens: that were drawn, one for each slot; empty if none were.
        costs: of each token, for medians.
        observers: if the decoder ended.
    """

    lost: bool = False
    tokens: tuple[int, ...] = ()
    costs: tuple[Cost, ...] | None = None
    observers: tuple[Observer, ...] = ()


def decode(order: Order) -> Decoded:
    """Does what an order says, by the decoder of its name, which this process keeps."""
    with exclusive:
        decoder: SlotDecoder | None = find(order.name)
        if order.begin is not None:
            decoder = SlotDecoder(*order.begin)
            keep(order.name, decoder)
        if decoder is None or not order.first <= decoder.step <= order.first + len(order.tokens):
            return Decoded(lost=True)
        # A reply that was lost on its way is asked for again: what is known is not appended twice.
        for index in range(decoder.step - order.first, len(order.tokens)):
            if decoder.is_ahead(order.tokens[index]):
                return Decoded(lost=True)
            decoder.append(order.tokens[index], order.sources[index])
        if order.ends:
            forget(order.name)
            return Decoded(observers=decoder.job.observers)
        if not order.draw:
            return Decoded()
        if decoder.is_ahead(None):
            return Decoded(lost=True)
        drawn = decoder.draw(order.sources[-1])
        if isinstance(decoder.job.model, ModelReference) and not decoder.is_last:
            _ahead.submit(decoder.expect, drawn.tokens, decoder.step)
        return drawn


@dataclass(frozen=True, slots=True)
class _Expected:
    """Tokens that were drawn here, and, as if they were committed, the logits that follow, or why there are none."""

    tokens: tuple[int, ...]
    logits: list[torch.Tensor] | Exception


class SlotDecoder:
    """Some slots of one shape, between two steps."""

    def __init__(self, job: Job, items: Sequence[SlotInput]) -> None:
        self.job = job
        self.step = 0
        self._laws = job.laws()
        self._rule = job.mechanism.end_rule(self._laws.model)
        self._items = items
        self._texts = [SlotText() for _ in items]
        self._rows = SlotRows(self._laws, items)
        self._event = job.mechanism.token_event()
        self._drawn_from: tuple[Sources, list[Aggregate]] | None = None
        self._written = False  # whether the cache holds the last tokens
        self._expected: _Expected | None = None
        self._logits: list[torch.Tensor] | None = None  # that follow the last tokens, if they were expected
        self._threads = ThreadPoolExecutor(_THREADS) if job.source.name == OS_ENTROPY.name else None

    def draw(self, sources: Sources) -> Decoded:
        """The next token of every slot, with its realised cost."""
        places = [f"{item.slot} {self.step}" for item in self._items]
        logits, self._logits = self._logits or self._rows.logits(), None
        drawn = self._spread(self._aggregate_and_draw, self._items, logits, sources, places)
        self._written = True
        if self._compares:
            self._drawn_from = (sources, [law for law, _, _ in drawn])
        costs = None
        if self.job.mechanism.aggregate == "median":
            costs = tuple(cost for _, _, cost in drawn if cost is not None)
        return Decoded(tokens=tuple(token for _, token, _ in drawn), costs=costs)

    @property
    def is_last(self) -> bool:
        """Whether the step that is drawn is the last one."""
        return self.step + 1 >= self.job.mechanism.tokens

    def expect(self, tokens: tuple[int, ...], step: int) -> None:
        """Computes the logits that follow tokens of a step, unless an order came first."""
        with exclusive:
            if self.step != step or self._compares:
                return
            ended = [self._rule.ended([*text.current, token]) for text, token in zip(self._texts, tokens, strict=True)]
            try:
                self._rows.advance(tokens, ended)
                self._expected = _Expected(tokens, self._rows.logits())
            except Exception as error:  # it is raised where the logits are needed
                self._expected = _Expected(tokens, error)

    def is_ahead(self, tokens: tuple[int, ...] | None) -> bool:
        """Whether the rows went on with a draw that is not what was committed; None if nothing was."""
        return self._expected is not None and self._expected.tokens != tokens

    def append(self, tokens: Sequence[int], sources: Sources) -> None:
        """Appends what was committed, which is not always what was drawn here."""
        expected, self._expected, self._logits = self._expected, None, None
        if expected is not None:
            self._append_expected(expected)
            return
        if self._compares:
            same = self._drawn_from is not None and self._drawn_from[0] == sources
            laws = self._drawn_from[1] if same and self._drawn_from else self._distributions(sources)
            self._drawn_from = None
            for law, item, text, token in zip(laws, self._items, self._texts, tokens, strict=True):
                self._compare(law, item, text, token)
            del laws  # they hold the logits, which need not be in memory during the next step
        elif not self._written:
            self._rows.logits()  # writes the keys and values of the last tokens
        self._rows.advance(tokens, self._append(tokens))
        self._written = False
        self.step += 1

    def _append_expected(self, expected: _Expected) -> None:
        if isinstance(expected.logits, Exception):
            raise expected.logits
        self._append(expected.tokens)
        self._logits, self._written = expected.logits, True
        self.step += 1

    def _append(self, tokens: Sequence[int]) -> list[bool]:
        """Appends tokens to the slots' texts; returns which documents ended."""
        return [text.append(token, self._rule) for text, token in zip(self._texts, tokens, strict=True)]

    @property
    def _compares(self) -> bool:
        """Whether committed tokens are compared with the distributions that they were drawn from."""
        return bool(self.job.observers) or self.job.mechanism.top_k is not None

    def _distributions(self, sources: Sources) -> list[Aggregate]:
        laws = self._spread(self._laws.aggregate, self._items, self._rows.logits(), sources)
        self._written = True
        return laws

    def _spread(self, work: Callable[..., T], *columns: Iterable[Any]) -> list[T]:
        """What `work` gives for every slot, on all cores if slots are large; in order for a recorded source, which may
        depend on it."""
        items = list(zip(*columns, strict=True))
        if self._threads is None or self._rows.logits_of_a_slot < _SHARED:
            return list(itertools.starmap(work, items))
        # Several slots at a time, because a thread's task costs as much as a short row.
        width = max(1, len(items) // (4 * _THREADS))
        parts = (items[start : start + width] for start in range(0, len(items), width))
        done = self._threads.map(lambda part: list(itertools.starmap(work, part)), parts)
        return list(itertools.chain.from_iterable(done))

    def _aggregate_and_draw(
        self, item: SlotInput, logits: torch.Tensor, source: int | None, place: str
    ) -> tuple[Aggregate, int, Cost | None]:
        law = self._laws.aggregate(item, logits, source)
        return law, *self._draw(law, place)

    def _draw(self, law: Aggregate, place: str) -> tuple[int, Cost | None]:
        mechanism = self.job.mechanism
        token = law.draw(self.job.source.at(place))
        if law.column(token) is None:
            raise charged.other_logits()
        if mechanism.aggregate != "median":
            return token, None
        replaced, rounding = mechanism.replaces_rows, mechanism.rounding
        cost = aggregation.median_cost(law, token, replaced=replaced, rounding=rounding)
        if mechanism.shifts_rows:  # no realised cost covers a batch that may change in every row
            cost = Cost(self._event.range, self._event.range, cost.gamma)
        if mechanism.center is not None:  # γ, unlike γ*, can exceed what a token of centred rows costs at most
            cost = cost._replace(gamma=min(cost.gamma, self._event.range))
        return token, cost

    def _compare(self, law: Aggregate, item: SlotInput, text: SlotText, token: int) -> None:
        """Shows a committed token to the observers."""
        column = law.column(token)
        if column is None:
            raise charged.other_logits()
        for observer in self.job.observers:
            observer.step(
                slot=item.slot,
                records=item.records,
                clipped=law.clipped,
                public=law.public,
                medians=law.medians,
                log_probability=law.log_probability(token),
                token=column,
                document=text.document,
                position=len(text.current),
            )
