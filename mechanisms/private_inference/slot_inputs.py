"""The private inputs of a run: the contexts of every slot as tokens, and groups of slots that fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np
import torch

from dpassay.base.arrays import Bools, Integers
from dpassay.data.batching import Batches
from dpassay.data.records import Record
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.models.decoding import DecodeSession, FixedRows, RowShape
from dpassay.mechanisms.private_inference import aggregation
from dpassay.mechanisms.private_inference.aggregation import Aggregate
from dpassay.mechanisms.private_inference.clusters import PIECE
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.transcripts import Transcript

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.models.row_shapes import RowPlan

T = TypeVar("T")

MEMORY = 4 * 2**30  # bytes of keys, values and logits for slots that are decoded together


@dataclass(frozen=True, slots=True)
class SlotInput:
    """The model's input for one slot.

    Attributes:
        slot: its number.
        contexts: token ids, one context per row.
        records: row → index of the (first) record of the context.
        fallback: the public context without an example, if the aggregate may need it; its logits are an additional row.
    """

    slot: int
    contexts: tuple[list[int], ...]
    records: tuple[int, ...]
    fallback: list[int] | None

    @property
    def rows(self) -> list[list[int]]:
        """All rows that are decoded for this slot."""
        return [*self.contexts, *([] if self.fallback is None else [self.fallback])]


class SlotLaws:
    """The distribution of each slot's next token, given the contexts of the slot.

    Args:
        mechanism: the parameters.
        model: the language model.
        row_plan: the shapes of its forward passes.
    """

    def __init__(self, mechanism: PrivateInference, model: LanguageModel, row_plan: RowPlan) -> None:
        self.mechanism = mechanism
        self.model = model
        self.row_plan = row_plan

    def shape(self, slot: int) -> RowShape | None:
        """The public shape of a slot's forward passes; None if rows are packed."""
        shapes = self.row_plan.shapes
        return None if shapes is None else shapes[self.mechanism.label_of(slot)]

    def decode(self, items: Sequence[SlotInput]) -> DecodeSession | FixedRows | None:
        """A decode session for the rows of slots of one shape; None if there are no rows."""
        rows = [row for item in items for row in item.rows]
        if not rows:
            return None
        shape = self.shape(items[0].slot)
        return self.model.packed_rows(rows) if shape is None else self.model.fixed_rows(rows, shape)

    def aggregate(self, item: SlotInput, logits: torch.Tensor, row: int | None = None) -> Aggregate:
        """The distribution of a slot's next token, from the logits, shape (rows, V), of `SlotInput.rows` on the device
        of the model; without protection, from the row of the record from which the document is generated, or None for
        the fallback."""
        mechanism, count = self.mechanism, len(item.contexts)
        own, fallback = logits[:count], None if item.fallback is None else logits[count]
        law: dict[str, Any] = {"clip": mechanism.clip, "temperature": mechanism.temperature, "tail": mechanism.tail}
        law["top_k"] = mechanism.top_k
        if mechanism.aggregate == "median":
            return aggregation.median(own, fallback, adjacency=mechanism.adjacency, **law)
        if mechanism.aggregate == "mean":
            return aggregation.mean(own, fallback, denominator=mechanism.denominator or mechanism.batch_size, **law)
        chosen = fallback if row is None else own[row]
        assert chosen is not None
        return aggregation.single(own, chosen, temperature=mechanism.temperature)


class SlotInputs(SlotLaws):
    """The same, and the inputs of all slots of a run."""

    def __init__(
        self,
        mechanism: PrivateInference,
        records: Sequence[Record],
        model: LanguageModel,
        key: bytes,
        cluster_counts: Sequence[Sequence[int]] | None = None,
        executor: Executor = THIS_PROCESS,
    ) -> None:
        super().__init__(mechanism, model, mechanism.row_plan(model))
        self.records = records
        self.cut: Bools = np.zeros(len(records), dtype=bool)
        """Shape (records,): whether a record was too long for its context, once its slot was tokenised. Private."""
        self._key = key
        self._executor = executor  # embeds the records, with centres
        self._batches: Batches | None = None
        if mechanism.centres is None or cluster_counts is not None:
            self.arrange(cluster_counts)
        labels: tuple[str | None, ...] = mechanism.labels or (None,)
        self._prompts = {label: mechanism.prompt(model, label) for label in labels}
        self._record_tokens = {label: prompt.record_tokens for label, prompt in self._prompts.items()}

    @property
    def batches(self) -> Batches:
        """The records in slots; with centres, only after the counts of clusters are released."""
        if self._batches is None:
            raise ValueError("a run with centres is batched by its released cluster counts, which are missing")
        return self._batches

    def arrange(self, cluster_counts: Sequence[Sequence[int]] | None) -> None:
        """Assigns the records to slots; with centres by the released counts of clusters, shape (labels, K)."""
        self._batches = self.mechanism.batches(self.records, self._key, cluster_counts, self._executor)

    def cluster_units(self) -> Integers:
        """The number of units of each label that are nearest to each centre, shape (labels, K). Private."""
        return self.mechanism.cluster_units(self.records, self._key, self._executor)

    def slot(self, slot: int) -> SlotInput:
        """The contexts of one slot, in tokens."""
        label = self.mechanism.label_of(slot)
        prompt, share = self._prompts[label], self._record_tokens[label]
        members = self.batches.contexts[slot]
        shown = [prompt.context_and_cut([self.records[i].text for i in context], share) for context in members]
        for context, (_, cut) in zip(members, shown, strict=True):
            self.cut[list(context)] = cut
        contexts = tuple(ids for ids, _ in shown)
        fallback = prompt.context([], share) if self._needs_fallback(len(members)) else None
        return SlotInput(slot, contexts, tuple(context[0] for context in members), fallback)

    def _needs_fallback(self, size: int) -> bool:
        if self.mechanism.center is not None:
            return True
        match self.mechanism.aggregate:
            case "median":
                return size <= 1  # an empty batch uses it; a batch of one falls back to it if its row is removed
            case "mean":
                return self.mechanism.anchor
            case _:
                return size == 0

    def digest(self) -> str:
        """SHA-256 of everything that determines what a resumed run computes. Private."""
        public = (self.mechanism, self.model.fingerprint, self.model.dtype, self._key, self.row_plan.to_json())
        clusters = None if self.mechanism.centres is None else self.mechanism.clusters().fingerprint
        # Earlier versions did not have these.
        later = [value for value in (self.mechanism.center, self.mechanism.top_k) if value is not None]
        digest = hashlib.sha256(repr((*public, clusters, *later)).encode())
        for record in self.records:
            fields = repr((record.slotting_id, record.id, record.label, record.user, record.text))
            digest.update(hashlib.sha256(fields.encode("utf-8", "surrogatepass")).digest())
        return digest.hexdigest()

    def assignment_digest(self) -> str:
        """SHA-256 of which records share a slot and a context. Private."""
        digest, contexts = hashlib.sha256(b"("), self.batches.contexts  # of all slots as one tuple in Python's notation
        for slot, members in enumerate(contexts):
            digest.update(f"{', ' if slot else ''}{members!r}".encode())
        digest.update(b",)" if len(contexts) == 1 else b")")
        return digest.hexdigest()

    def groups(
        self, slots: Sequence[int], rows_at_once: int | None = None, *, copies: int = 1, parts: int = 1
    ) -> list[list[int]]:
        """As `side_by_side`, of slots of this data set that run. They are tokenised group by group; for the others only
        the number of rows is held."""
        groups = side_by_side([(self, slot) for slot in slots], rows_at_once, copies=copies, parts=parts)
        return [[slot for _, slot in group] for group in groups]

    def count(self, slot: int) -> int:
        """The number of rows of a slot."""
        size = len(self.batches.contexts[slot])
        return size + self._needs_fallback(size)

    def rows_that_fit(self, slot: int, copies: int) -> int:
        """The number of rows that fit into memory, shared by so many data sets, at the public length of a slot's
        contexts and documents."""
        mechanism, model = self.mechanism, self.model
        longest = self._prompts[mechanism.label_of(slot)].longest_context
        positions = longest + min(mechanism.end_rule(model).longest, mechanism.tokens)
        row = positions * model.bytes_per_position + 8 * model.vocabulary_size
        return max(1, MEMORY // (row * copies))


class SlotRows:
    """The rows of several slots of one shape, decoded in parallel."""

    def __init__(self, inputs: SlotLaws, items: Sequence[SlotInput]) -> None:
        ends = np.cumsum([len(item.rows) for item in items])
        self._slices = [slice(int(end) - len(item.rows), int(end)) for item, end in zip(items, ends, strict=True)]
        self._vocabulary = inputs.model.vocabulary_size
        self._session = inputs.decode(items)
        self._counts = torch.tensor([len(item.rows) for item in items])

    @property
    def logits_of_a_slot(self) -> int:
        """How many numbers the logits of a slot are on average."""
        return self._vocabulary * int(self._counts.sum()) // max(1, len(self._counts))

    def logits(self) -> list[torch.Tensor]:
        """For each slot, the logits of its rows, shape (rows, V), float32, on the device of the model.

        A row that is no numbers (NaN, +∞ or no finite entry) is 0 at every token, a public constant, so that whether a
        run ends does not depend on one record: docs/proofs/ex-post.md, assumptions.
        """
        if self._session is None:
            return [torch.empty(0, self._vocabulary) for _ in self._slices]
        together = self._session.logits()
        finite = together.amax(dim=1).isfinite()
        if not bool(finite.all()):
            together = torch.where(finite[:, None], together, 0.0)
        return [together[rows] for rows in self._slices]

    def advance(self, tokens: Sequence[int], ended: Sequence[bool]) -> None:
        """Appends each slot's token to its rows; slots whose document ended are reset to their contexts."""
        if self._session is None:
            return
        self._session.append(torch.tensor(tokens).repeat_interleave(self._counts))
        if any(ended):
            self._session.reset(torch.tensor(ended).repeat_interleave(self._counts))


Slot: TypeAlias = "tuple[SlotInputs, int]"
"""A slot of a data set, by its number."""


def side_by_side(
    slots: Sequence[Slot], rows_at_once: int | None = None, *, copies: int = 1, parts: int = 1
) -> list[list[Slot]]:
    """Groups of consecutive slots of one shape, each with at most this many rows, or a single slot with more; None for
    as many as fit into memory with their keys, values and logits, shared by so many `copies` of such groups. A group
    that is divided into `parts` has so many times as many. Slots are of data sets that share mechanism and model."""
    groups: list[list[Slot]] = []
    held, shape, limit = 0, None, 0
    for inputs, slot in slots:
        count, own = inputs.count(slot), inputs.shape(slot)
        if not groups or own != shape or held + count > limit:
            groups.append([])
            held, shape = 0, own
            limit = parts * (rows_at_once or inputs.rows_that_fit(slot, copies))
        groups[-1].append((inputs, slot))
        held += count
    return groups


def in_parts(group: Sequence[T], rows: Sequence[int], count: int) -> list[list[T]]:
    """Slots that follow each other, in at most so many parts of about as many rows, given the rows of each slot."""
    count, ends = min(count, len(group)), np.cumsum(np.maximum(rows, 1))
    places = np.minimum((ends - 1) * count // ends[-1], count - 1)
    return [[group[place] for place in np.flatnonzero(places == index).tolist()] for index in np.unique(places)]


@dataclass(frozen=True, slots=True)
class ForcedStep:
    """A token of a transcript, the last of a document if it `ends`, with the logits before it for given records, shape
    (rows, V) of `SlotInput.rows`; its index in the slot, and that of the slot in its group."""

    index: int
    item: SlotInput
    step: int
    token: int
    logits: torch.Tensor
    ends: bool


@dataclass(frozen=True, slots=True)
class Forced:
    """Slots of one shape, with the tokens of a transcript on which they are replayed. It can be sent to a worker.

    Attributes:
        items: slots that ran, of data sets with the mechanism, model and key of the run. Private.
        tokens: of each slot, as many as of the others.
    """

    items: tuple[SlotInput, ...]
    tokens: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, group: Sequence[Slot], transcript: Transcript) -> Self:
        """Slots that ran, with their tokens in a transcript."""
        return cls(
            tuple(inputs.slot(slot) for inputs, slot in group), tuple(transcript.tokens[slot] for _, slot in group)
        )

    def steps(self, laws: SlotLaws) -> Iterator[ForcedStep]:
        """Replays the tokens, one forward pass per token, in the shapes of the run: token by token, each slot in
        order."""
        rule = laws.mechanism.end_rule(laws.model)
        tokens = np.array(self.tokens, dtype=np.int64)
        ended = np.zeros(tokens.shape, dtype=bool)
        for row, own in enumerate(self.tokens):
            ended[row, np.cumsum([len(document) for document in rule.split(own)]) - 1] = True
        rows = SlotRows(laws, self.items)
        for step in range(tokens.shape[1]):
            for row, (item, logits) in enumerate(zip(self.items, rows.logits(), strict=True)):
                yield ForcedStep(row, item, step, int(tokens[row, step]), logits, bool(ended[row, step]))
            rows.advance(tokens[:, step].tolist(), ended[:, step].tolist())


def replayed_inputs(
    mechanism: PrivateInference,
    records: Sequence[Record],
    model: LanguageModel,
    key: bytes,
    transcript: Transcript,
    executor: Executor = THIS_PROCESS,
) -> SlotInputs:
    """The slots of a data set on which a transcript is replayed.

    With centres, few records are embedded in this process, which keeps their vectors for the next data set; more on the
    workers of `executor`.
    """
    where = executor if len(records) > PIECE else THIS_PROCESS
    return SlotInputs(mechanism, records, model, key, transcript.cluster_counts, where)
