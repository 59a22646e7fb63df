"""Private inference: a language model generates text from private records, whose predictions are aggregated.

Records are hashed into slots. For every slot, the model predicts the next token from each record separately; the
predictions are clipped and aggregated, one token is sampled from the softmax of the aggregate and appended to all rows.
Each slot generates exactly its token budget, document after document. The aggregate determines the cost of a token:

- ``mean``: the sum over a fixed public denominator s changes by at most c/s per coordinate, so each token is a
  bounded-range selection with η = 2c/(sτ); 4c/(sτ) if a row is replaced (replace_one, contexts of several records);
  8c/(sτ) for both.
- ``median``: η = 4c/τ before the run (2c/τ if rows are centred and none is replaced); the realised ex-post
  cost is computed from the batch and recorded in the ledger.
- ``none``: the unprotected control. Each document is generated from one record.

With ``center: public``, a record's logits less those of the prompt without a record are clipped, and the public ones
are added to the aggregate: a smaller c then keeps what a record adds (docs/proofs/centred.md).

With public centres, a record is hashed into the slots of its cluster: noisy counts of clusters are released first, and
given them a record's cluster is a function of its own text (`clusters`).

Slots are disjoint, and a record's slot depends only on a hash of its own id: slots compose in parallel. The published
variant cuts shuffled records into pieces instead, and one record shifts all later pieces: they compose sequentially.

Source: Amin et al., "Private Prediction for Large-Scale Synthetic Text Generation" (2024), for the mean;
"Clustering and Median Aggregation Improve Differentially Private Inference", Algorithm 1, for the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import SINGLE_UNITS, Adjacency, Unit
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent, ParallelDpEvent
from dpassay.accounting.ex_post.clipped_rows import GRID, MAX_TAIL, check_clip
from dpassay.base import validate
from dpassay.data.records import Record
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.models.end_rule import EndRule
from dpassay.mechanisms.models.prompts import FENCE, INSTRUCTION, PRETRAINED, Prompt, check_template
from dpassay.mechanisms.primitives import counts, token_sampler
from dpassay.mechanisms.primitives.public_fields import check_adjacency, check_labels

if TYPE_CHECKING:
    from dpassay.base.arrays import Integers
    from dpassay.data.batching import Batches
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.models.row_shapes import RowPlan
    from dpassay.mechanisms.private_inference.clusters import Clusters

RECORD_TOKENS = 64
"""Number of tokens of each record for which a context has room, if the claim states no length."""
TAIL = 10.0
"""With ``center: public``, public logits more than 2·TAIL·τ below the largest are raised to that."""
CENTRED_CLIP = 5.0
"""The largest clip/temperature at which claims have a center unless they say so. A token then costs at most 2·10⁻⁵ more
by the rounding of its law (`token_sampler.selection_rounding`), which grows by e² for each τ of the clip beyond."""
MAX_SLOTS = 100_000
"""The largest number of slots of all labels: each is a part of the plan, and has its own documents."""
MAX_TOKENS = 10**9
"""The largest number of tokens of all slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateInference:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        aggregate: of the logits of a slot: ``median``, ``mean``, or ``none`` for the unprotected control.
        clip: c: logits are shifted to a maximum of c and clipped at −c.
        temperature: τ of the softmax from which tokens are sampled; 2c/τ is at most 40.
        batch_size: the mean number of contexts in a slot (as published: the exact number).
        tokens: number of tokens that each slot samples, end of text included.
        records: the public number n of privacy units.
        labels: the public set of labels, each with its own slots; empty pools all records.
        records_per_context: k, the (mean) number of records in a context.
        denominator: s of the mean; batch_size by default.
        anchor: whether a mean always includes the clipped logits of the prompt without an example (s then counts it).
        center: ``public`` clips each record's logits less those of the prompt without a record to [−c, c], and adds the
            public ones to the aggregate; None clips the logits themselves. c/τ is then at most 10.
        top_k: k: with a center, only tokens are drawn whose public logit is at most 2c below the k-th largest; None for
            all tokens.
        prefix: a public text with which every document begins; never sampled, never charged.
        template: of the prompt: ``pretrained`` or ``instruction`` (`prompts`), or a template in Jinja or `str.format`
            with ``examples`` and ``label``; None is the embedded model's own form for that model, ``pretrained`` for
            others.
        stop: a string that ends a document, in addition to end-of-text; by default the fence of ``pretrained``.
        variant: ``sound``, or ``as_published`` with pieces of a fixed size.
        adjacency: add_remove or replace_one.
        unit: record or user.
        slot_count_epsilon: ε of the noisy slot counts, used if slot_threshold is set.
        slot_threshold: slots with a noisy count of units of at least this run; None runs all and releases no counts.
        centres: a file of public centres (`embedding.centres.Centres`) by which records are clustered; None for no
            clustering.
        kept_centres: k′, the number of centres that each label keeps, by noisy counts; at most `slots`.
        cluster_count_epsilon: ε of the noisy counts of clusters.
        embedder: with which the centres were computed: ``builtin`` for the one in their file, else the folder or hub id
            of a `sentence-transformers` model on this machine.
        rows: ``fixed`` computes every row in forward passes of one public shape, at which rows are verified not to
            depend on each other; ``packed`` uses shapes that depend on the data, which is faster but proves nothing.
        context_tokens: the public number of tokens to which contexts are padded, for all labels or as pairs of a label
            and its number; None is the prompt without records plus 64 for each record. Longer records are truncated.
        document_tokens: the public largest number of tokens of a document; None is half of the model's positions.
    """

    aggregate: Literal["median", "mean", "none"]
    clip: float
    temperature: float
    batch_size: int
    tokens: int
    records: int
    labels: tuple[str, ...] = ()
    records_per_context: int = 1
    denominator: int | None = None
    anchor: bool = False
    prefix: str = ""
    template: str | None = None
    stop: str | None = None
    variant: Literal["sound", "as_published"] = "sound"
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    slot_count_epsilon: float = 0.1
    slot_threshold: float | None = None
    centres: Path | str | None = field(default=None, repr=False)  # a run is identified by its content, not its location
    kept_centres: int | None = None
    cluster_count_epsilon: float = 0.1
    embedder: str = field(default="builtin", repr=False)
    rows: Literal["fixed", "packed"] = "fixed"
    context_tokens: int | tuple[tuple[str, int], ...] | None = None
    document_tokens: int | None = None
    center: Literal["public"] | None = field(default=None, repr=False)  # not in the digests of earlier versions' runs
    top_k: int | None = field(default=None, repr=False)  # likewise

    def __post_init__(self) -> None:
        validate.one_of(("median", "mean", "none"), aggregate=self.aggregate)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        validate.one_of(("fixed", "packed"), rows=self.rows)
        check_clip(self.clip)
        validate.positive(temperature=self.temperature)
        self._check_center()
        if self.aggregate != "none":
            token_sampler.check_range(self.largest_logit, self.temperature)
        for name in ("batch_size", "tokens", "records", "records_per_context"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        if self.denominator is not None:
            validate.integer(minimum=1, denominator=self.denominator)
            if self.aggregate != "mean":
                raise ValueError(f"denominator is a parameter of aggregate mean, not {self.aggregate}; leave it out")
        if self.anchor and self.aggregate != "mean":
            raise ValueError(f"anchor is a parameter of aggregate mean, not {self.aggregate}; leave it out")
        self._check_public()
        self._check_size()

    def _check_center(self) -> None:
        if self.top_k is not None:
            validate.integer(minimum=1, top_k=self.top_k)
            if self.center is None:
                raise ValueError("top_k keeps tokens that are likely without a record, so it needs center: public")
            if self.rows == "packed":
                raise ValueError(
                    "top_k needs rows: fixed: in packed rows the public logits depend on other rows in their last "
                    "digits, and with them which tokens are kept"
                )
        if self.center is None:
            return
        validate.one_of(("public",), center=self.center)
        if self.aggregate == "none":
            raise ValueError("center is a parameter of aggregates mean and median, not none; leave it out")
        if self.anchor:
            raise ValueError("anchor adds the public logits that center already adds; leave one of them out")
        if self.variant == "as_published":
            raise ValueError("center is no part of variant as_published; use variant sound or leave it out")
        if self.clip > TAIL * self.temperature:
            raise ValueError(
                f"with center public, clip/temperature must be at most {TAIL:g}, not "
                f"{self.clip / self.temperature:g}; lower clip, 2 to 4 keep most of what a record adds"
            )

    @property
    def centred_by_default(self) -> bool:
        """Whether `center` is public in claims that leave it out."""
        sound = self.variant == "sound" and self.aggregate != "none" and not self.anchor
        return sound and self.clip <= CENTRED_CLIP * self.temperature

    @property
    def tail(self) -> float | None:
        """With ``center: public``, the clip of the public logits, a multiple of the grid; None otherwise."""
        if self.center is None:
            return None
        return math.floor(min(TAIL * self.temperature, MAX_TAIL) / GRID) * GRID

    @property
    def largest_logit(self) -> float:
        """Aggregated logits are between minus this and this, at the denominator of a mean."""
        return self.clip + (self.tail or 0.0)

    def _check_size(self) -> None:
        """Rejects sizes that are too large before anything of this size is allocated."""
        if self.total_slots > MAX_SLOTS:
            raise ValueError(
                f"records {self.records} and batch_size {self.batch_size} give {self.total_slots} slots, but at most "
                f"{MAX_SLOTS} are allowed; raise batch_size"
            )
        if self.tokens * self.total_slots > MAX_TOKENS:
            raise ValueError(
                f"tokens {self.tokens} in each of {self.total_slots} slots exceed the {MAX_TOKENS} tokens that a run "
                "may sample; lower tokens or raise batch_size"
            )

    def _check_public(self) -> None:
        check_adjacency(self.adjacency)
        several = self.records_per_context > 1 and self.variant == "sound"
        if self.aggregate == "median" and several and self.adjacency is Adjacency.REPLACE_ONE:
            raise ValueError(
                "a median under replace_one needs records_per_context 1: replacing a record would change two contexts "
                "of a slot, but the realised cost covers one; use add_remove or aggregate mean"
            )
        if not self.unit.is_single:
            raise ValueError(f"unit must be {SINGLE_UNITS} for private inference, not {str(self.unit)!r}")
        check_labels(self.labels)
        if self.template is not None:
            check_template(self.template)
        if self.stop is not None and not self.stop:
            raise ValueError("stop must not be empty; leave it out to stop at end-of-text only")
        validate.positive(slot_count_epsilon=self.slot_count_epsilon)
        if self.slot_threshold is not None:
            validate.finite(slot_threshold=self.slot_threshold)
            if self.aggregate == "none":
                raise ValueError("slot_threshold has no effect without protection; leave it out")
        self._check_lengths()
        self._check_clusters()

    def _check_lengths(self) -> None:
        if self.document_tokens is not None:
            validate.integer(minimum=1, document_tokens=self.document_tokens)
        given = self.context_tokens
        if isinstance(given, tuple):
            for label, tokens in given:
                if label not in self.labels:
                    raise ValueError(f"context_tokens has label {label!r}, which is not among the labels")
                validate.integer(minimum=1, context_tokens=tokens)
            missing = [label for label in self.labels if label not in dict(given)]
            if missing or not given:
                raise ValueError(f"context_tokens must name every label, and {', '.join(missing) or 'there is none'}")
        elif given is not None:
            validate.integer(minimum=1, context_tokens=given)

    def _check_clusters(self) -> None:
        validate.positive(cluster_count_epsilon=self.cluster_count_epsilon)
        if self.centres is None:
            if self.kept_centres is not None or self.embedder != "builtin":
                raise ValueError("kept_centres and embedder need centres; give a file of centres or leave them out")
            return
        if self.kept_centres is None:
            raise ValueError("centres needs kept_centres, the number of centres that each label keeps")
        if validate.integer(minimum=1, kept_centres=self.kept_centres) > self.slots:
            raise ValueError(
                f"kept_centres must be at most {self.slots}, the number of slots of each label, not "
                f"{self.kept_centres}; lower it or batch_size"
            )

    @property
    def slots(self) -> int:
        """The public number of slots of each label."""
        width = self.batch_size * self.records_per_context * max(1, len(self.labels))
        return max(1, round(self.records / width))

    @property
    def total_slots(self) -> int:
        """The number of slots of all labels."""
        return self.slots * max(1, len(self.labels))

    @property
    def contexts_per_slot(self) -> int:
        """The public number of contexts into which the records of a slot are hashed, for k ≥ 2."""
        width = self.slots * max(1, len(self.labels)) * self.records_per_context
        return max(1, -(-self.records // width))

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected, and the accounting covers the algorithm as it runs."""
        return self.variant == "sound" and self.aggregate != "none"

    @property
    def replaces_rows(self) -> bool:
        """Whether adding or removing a unit may *replace* a row of a slot instead of adding or removing one."""
        several = self.records_per_context > 1 or self.variant == "as_published"
        return several or self.adjacency is Adjacency.REPLACE_ONE

    @property
    def rounding(self) -> float:
        """The bound on |log p̃/p| of the integer sampler, part of every selection's event."""
        return token_sampler.selection_rounding(self.largest_logit, self.temperature)

    def label_of(self, slot: int) -> str | None:
        """The public label of a slot."""
        return self.labels[slot // self.slots] if self.labels else None

    @property
    def shifts_rows(self) -> bool:
        """Whether adding or removing a unit may change every row of a slot: pieces with contexts of several records."""
        return self.variant == "as_published" and self.records_per_context > 1

    @property
    def charges_jointly(self) -> bool:
        """Whether one token of *all* slots is one event: a mean under replace_one, sound.

        A unit that moves from one slot to another changes both. Given the past, slots are independent, so their tokens
        jointly are one selection whose range is the sum of both ranges: η = 4c/(sτ), as for a row that is replaced
        within a slot.
        """
        return self.aggregate == "mean" and self.variant == "sound" and self.adjacency is Adjacency.REPLACE_ONE

    def token_event(self) -> DpEvent:
        """The event of one token of one slot (of all slots, if `charges_jointly`) before the run."""
        if self.aggregate == "none":
            return dp_event.NonPrivateDpEvent()
        if self.aggregate == "median":
            ends = 2 if self.center and not self.replaces_rows else 4
            return ExPostSelectionDpEvent(ends * self.clip / self.temperature, self.rounding)
        if self.shifts_rows:
            return BoundedRangeSelectionDpEvent(4 * self.clip / self.temperature, self.rounding)
        unit = self.clip / ((self.denominator or self.batch_size) * self.temperature)
        if self.charges_jointly:
            ranges = 4 if self.records_per_context == 1 else 8
            return BoundedRangeSelectionDpEvent(ranges * unit, 2 * self.rounding)
        return BoundedRangeSelectionDpEvent((4 if self.replaces_rows else 2) * unit, self.rounding)

    def plan(self) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; known before any data are read."""
        event, labels = self.token_event(), max(1, len(self.labels))
        if self.charges_jointly:
            generated = events.compose([(event, self.tokens)])
        elif self.variant == "sound":
            generated = ParallelDpEvent([events.compose([(event, self.tokens)])] * self.total_slots)
        else:
            generated = ParallelDpEvent([events.compose([(event, self.tokens * self.slots)])] * labels)
        return events.compose([*self._counted(), (generated, 1)])

    def _counted(self) -> list[tuple[DpEvent, int]]:
        """The events of the noisy counts: of clusters, then, given those, of slots."""
        wanted = [(self.centres, self.cluster_count_epsilon), (self.slot_threshold, self.slot_count_epsilon)]
        return [(counts.count_event(epsilon, self.adjacency), 1) for use, epsilon in wanted if use is not None]

    def published_plan(self) -> DpEvent:
        """The event by the papers' accounting: slots in parallel, and one row added or removed (η = 2c/(sτ))."""
        event = self.token_event()
        if self.aggregate == "mean":
            eta = 2 * self.clip / ((self.denominator or self.batch_size) * self.temperature)
            event = BoundedRangeSelectionDpEvent(eta)
        elif self.aggregate == "median":
            event = ExPostSelectionDpEvent(4 * self.clip / self.temperature)
        return events.compose([(ParallelDpEvent([events.compose([(event, self.tokens)])] * self.total_slots), 1)])

    def clusters(self) -> Clusters:
        """The public centres and their embedder, read from their files."""
        from dpassay.mechanisms.private_inference.clusters import Clusters

        assert self.centres is not None
        return Clusters.load(self.centres, self.embedder)

    def cluster_units(self, records: Sequence[Record], key: bytes, executor: Executor = THIS_PROCESS) -> Integers:
        """The number of units of each label that are nearest to each centre, shape (labels, K). Private."""
        return self.clusters().units(records, self.labels, key, self.unit, executor)

    def batches(
        self,
        records: Sequence[Record],
        key: bytes,
        cluster_counts: Sequence[Sequence[int]] | None = None,
        executor: Executor = THIS_PROCESS,
    ) -> Batches:
        """The records in slots and contexts. Private.

        Args:
            records: private.
            key: of the batching.
            cluster_counts: shape (labels, K), released; needed with centres (`Transcript.cluster_counts`).
            executor: where records are embedded, with centres.
        """
        from dpassay.data.batching import cut_slots, hashed_slots, label_cells

        if self.kept_centres is None:
            cells = label_cells(records, self.labels, self.slots)
        else:
            cells = self.clusters().cells(
                records, self.labels, cluster_counts, kept=self.kept_centres, slots=self.slots, executor=executor
            )
        if self.variant == "sound":
            return hashed_slots(
                records,
                cells,
                key=key,
                contexts=self.contexts_per_slot,
                records_per_context=self.records_per_context,
                unit=self.unit,
            )
        return cut_slots(
            records,
            cells,
            key=key,
            batch_size=self.batch_size,
            records_per_context=self.records_per_context,
            unit=self.unit,
        )

    def prompt(self, model: LanguageModel, label: str | None) -> Prompt:
        """The prompt for the slots of a label, with the public number of tokens to which contexts are padded.

        Raises:
            ValueError: if the model has too few positions.
        """
        room = model.context_length - self._longest_document(model)
        given = self.context_tokens
        if isinstance(given, tuple):
            given = dict(given)[label or ""]
        if room < 1 or (given or 0) > room:
            raise ValueError(
                f"the model has {model.context_length} positions, of which {max(0, room)} remain for a context after a "
                f"document of {self._longest_document(model)}; lower context_tokens or document_tokens"
            )
        prompt = Prompt(model, self._template(model), label, self.prefix, self.records_per_context, room)
        if given is None:  # one shape for all labels
            overhead = max(replace(prompt, label=other).overhead for other in self.labels or (None,))
            given = min(room, overhead + RECORD_TOKENS * self.records_per_context)
        return replace(prompt, longest_context=given)

    def _template(self, model: LanguageModel) -> str | None:
        return self.template or (None if model.is_builtin else PRETRAINED)

    def _longest_document(self, model: LanguageModel) -> int:
        return self.document_tokens or model.context_length - model.context_length // 2

    def end_rule(self, model: LanguageModel) -> EndRule:
        """The rule for the end of a document, at the latest after the public largest number of tokens."""
        stop = FENCE if self.stop is None and self._template(model) == PRETRAINED else self.stop
        return EndRule(model, stop, self._longest_document(model), chat=self._template(model) == INSTRUCTION)

    def row_plan(self, model: LanguageModel) -> RowPlan:
        """The public shapes of the forward passes, and whether rows are verified to be exact at them.

        Verification takes about ten forward passes of contexts for each shape, once for each model object.

        Raises:
            ValueError: if the model has modules that may compute rows together, or rows are not exact with `top_k`.
        """
        from dpassay.mechanisms.models import row_shapes

        model.check_modules()
        if self.rows == "packed":
            return row_shapes.PACKED
        document = min(self._longest_document(model), self.tokens)
        contexts = {label: self.prompt(model, label).longest_context for label in self.labels or (None,)}
        pinned = max(contexts.values()) + document
        rows = -(-self.records // self.records_per_context) + self.total_slots
        results = {
            label: model.row_shape(row_shapes.preferred(rows, context, context + document, pinned))
            for label, context in contexts.items()
        }
        shapes = {label: shape for label, (shape, _) in results.items()}
        exact = all(exact for _, exact in results.values())
        if self.top_k is not None and not exact:
            raise ValueError(
                "top_k needs a device on which a row's logits do not depend on the rows beside it, and here they do in "
                "their last digits; use device cpu, or leave top_k out"
            )
        return row_shapes.RowPlan(shapes, exact)

    def check(self, records: Sequence[Record], model: LanguageModel, executor: Executor = THIS_PROCESS) -> None:
        """Checks that these records and this model can be run, before anything is charged or written.

        With centres, the executor embeds all records.

        Raises:
            ValueError: one line, which reveals nothing about any record.
        """
        from dpassay.data.batching import label_indices, unit_records

        label_indices(records, self.labels)
        unit_records(records, bytes(32), self.unit)
        if self.kept_centres is not None:
            self.clusters().check(records, self.kept_centres, executor)
        for label in self.labels or (None,):
            _ = self.prompt(model, label).record_tokens
        self.row_plan(model)
