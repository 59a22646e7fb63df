"""Dataset vectors: a language model is steered by one private release, the direction from its own texts to the records.

For each public label, or once without labels:

1. the model writes candidates, without any record (public);
2. every record votes for its nearest candidate, votes get Gaussian noise, and the best become the shots of all later
   prompts (a release; left out with ``shots=0``);
3. the model writes negatives, prompted with the shots (public);
4. the difference of a record's hidden states and those of a negative is clipped, summed and gets Gaussian noise
   (`release`; a release);
5. the model, steered along the noisy mean difference, writes any number of texts.

The two releases are all that is computed from records, so no later text costs anything. Each has μ = 1/its noise
multiplier under the run's adjacency: adding or removing a record moves one vote by 1 and each block's sum by the clip;
replacing one moves two votes by 1 (√2 together) and each sum by twice the clip.

A negative is assigned to a record by a hash of the record's own id (``hashed``), or all are represented by their mean
(``mean``). Both depend on the record alone. The paper pairs by row number (``rows``), so removing a record pairs all
later ones anew: under add_remove the sum then moves by up to nearly 2nC, and so it does for a record that changes its
label.

A secret sample (``sample``) amplifies the second release: m of the n records of a label, drawn without replacement
from the operating system's entropy. It needs replace_one, and an exact public number of records of each label: the
record that is replaced keeps its label.

Proofs: docs/proofs/dataset-vectors.md, Theorems 1 to 5.

Source: "EPSVec: Efficient and Private Synthetic Data Generation via Dataset Vectors", Algorithms 1 and 2, equations 1
to 4. Its public code differs from it in ways that ``as_published`` shows: the noise is made for a sensitivity of C/n
under replace_one, and the sample is drawn with a public seed, which voids amplification.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.events import ParallelDpEvent
from dpassay.accounting.gaussian import histogram_sensitivity, sum_sensitivity
from dpassay.accounting.ledger.entries import Charge
from dpassay.accounting.ledger.run import Run
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.data.batching import keyed_hash
from dpassay.data.records import Record, RecordsAt, Texts
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.dataset_vectors import release
from dpassay.mechanisms.dataset_vectors.journalled import journalled
from dpassay.mechanisms.embedding.embedder import Embedder, all_embedded, embedded
from dpassay.mechanisms.embedding.load import load_embedder
from dpassay.mechanisms.evolution import run as evolution_run
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.models.writers import WriterError
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.public_fields import check_adjacency, check_labels
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

if TYPE_CHECKING:
    from dpassay.mechanisms.dataset_vectors.states import StateShape
    from dpassay.mechanisms.dataset_vectors.texts import ShotWriter

Pairing = Literal["hashed", "mean", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetVectors:
    """The public description of a run: parameters only, which do not depend on the data.

    Attributes:
        noise_multiplier: σ/Δ of the vectors, jointly over all blocks and under `adjacency`: their μ is its inverse. 0
            is the unprotected control.
        shots_noise_multiplier: σ/Δ of the votes for candidates.
        records: the public number of records; with labels, of all of them together.
        records_by_label: the public number of records of each of `labels`; without labels, empty.
        labels: the public set of labels, each with its own shots and vectors; empty pools all records.
        sample: m, the number of records of each label that are drawn in secret; None uses all.
        blocks: the decoder blocks whose outputs are used, counted from 0; None for those from half to two thirds of
            the depth.
        clip: C of each block, or of all; None for the median length of differences between public texts.
        pairing: what a record's states are compared with: a negative that a hash chooses (``hashed``), the ``mean`` of
            all, or, as published, that of the same number (``rows``).
        pool: whether a text's states are averaged over its own tokens (``record``), or the prompt's, too (``prompt``).
        candidates: number of candidates of each label.
        shots: number of candidates in later prompts; 0 for none, and no votes.
        negatives: number of negatives of each label.
        embedder: ``builtin``, or the folder or hub id of a `sentence-transformers` model, for the votes.
        seed: of public choices only; noise has no seed.
        variant: ``sound`` or ``as_published``.
        adjacency: add_remove or replace_one.
        unit: record.
    """

    noise_multiplier: float
    records: int
    blocks: tuple[int, ...] | None = None
    clip: float | tuple[float, ...] | None = None
    shots_noise_multiplier: float = 0.0
    records_by_label: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    sample: int | None = None
    pairing: Pairing = "hashed"
    pool: Literal["record", "prompt"] = "record"
    candidates: int = 100
    shots: int = 2
    negatives: int = 100
    embedder: str = field(default="builtin", repr=False)  # a run is identified by its fingerprint, not its location
    seed: int = 0
    variant: Literal["sound", "as_published"] = "sound"
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    unit: Unit = field(default_factory=Unit)

    def __post_init__(self) -> None:
        validate.non_negative(noise_multiplier=self.noise_multiplier)
        validate.non_negative(shots_noise_multiplier=self.shots_noise_multiplier)
        for name in ("records", "candidates", "negatives"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        validate.integer(minimum=0, shots=self.shots)
        validate.integer(minimum=0, seed=self.seed)
        if self.shots > self.candidates:
            raise ValueError(f"shots must be at most candidates ({self.candidates}), not {self.shots}")
        validate.one_of(("hashed", "mean", "rows"), pairing=self.pairing)
        validate.one_of(("record", "prompt"), pool=self.pool)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        check_adjacency(self.adjacency)
        if self.unit != Unit():
            raise ValueError(
                f"unit must be record for dataset vectors, not {str(self.unit)!r}: each has one difference"
            )
        if self.pairing == "rows" and (self.variant == "sound" or self.negatives < self.largest_sum):
            raise ValueError(
                "pairing by rows is for variant as_published, with a negative for each record that is used"
            )
        self._check_blocks()
        self._check_labels()

    def _check_blocks(self) -> None:
        if self.blocks is not None:
            if not isinstance(self.blocks, tuple) or not self.blocks:
                raise ValueError("blocks must name at least one decoder block, counted from 0")
            for block in self.blocks:
                validate.integer(minimum=0, block=block)
            if len(set(self.blocks)) < len(self.blocks):
                raise ValueError("blocks must name each block once")
        for clip in self.clip if isinstance(self.clip, tuple) else () if self.clip is None else (self.clip,):
            validate.positive(clip=clip)
        if isinstance(self.clip, tuple) and (self.blocks is None or len(self.clip) != len(self.blocks)):
            raise ValueError("clip must be one number, or one for each of the blocks, which must be given then")

    def _check_labels(self) -> None:
        check_labels(self.labels)
        if len(self.records_by_label) != len(self.labels):
            raise ValueError("records_by_label must give a public number of records for each label, and for no other")
        for count in self.records_by_label:
            validate.integer(minimum=1, records_by_label=count)
        if self.labels and sum(self.records_by_label) != self.records:
            raise ValueError(f"records_by_label must add up to records ({self.records})")
        if self.shots > min(self.sizes.values()):
            raise ValueError(
                f"shots must be at most the number of records of each label ({min(self.sizes.values())}), "
                f"not {self.shots}"
            )
        if self.sample is None:
            return
        least = min(self.sizes.values())
        if validate.integer(minimum=1, sample=self.sample) > least:
            raise ValueError(f"sample must be at most the number of records of each label ({least}), not {self.sample}")
        if self.adjacency is not Adjacency.REPLACE_ONE:
            raise ValueError(
                "sample needs adjacency replace_one: a sample of a fixed size has no bound under add_remove"
            )

    def blocks_of(self, network: Any) -> tuple[int, ...]:
        """The decoder blocks that are used of a network.

        Raises:
            ValueError: if it has no such block.
        """
        from dpassay.mechanisms.dataset_vectors.steering import blocks, check_blocks

        depth = len(blocks(network))
        chosen = self.blocks or tuple(range(depth // 2, max(depth // 2 + 1, 2 * depth // 3)))
        check_blocks(network, chosen)
        return chosen

    @property
    def sizes(self) -> dict[str | None, int]:
        """The public number of records of each label; of all records if there are no labels."""
        return dict(zip(self.labels, self.records_by_label, strict=True)) if self.labels else {None: self.records}

    @property
    def largest_sum(self) -> int:
        """The largest number of records of a label that are summed, by the public numbers."""
        return max(self.sizes.values()) if self.sample is None else self.sample

    def divisor(self, label: str | None) -> int:
        """The public divisor of the mean of a label."""
        return self.sizes[label] if self.sample is None else self.sample

    @property
    def rows_shift(self) -> bool:
        """Whether one record more or less in a label pairs all its later records with other negatives.

        Under replace_one a record may leave its label for another one, unless a sample fixes their numbers.
        """
        moves = self.adjacency is Adjacency.ADD_REMOVE or (len(self.labels) > 1 and self.sample is None)
        return self.pairing == "rows" and moves

    @property
    def releasable(self) -> bool:
        """Whether the output of a run is protected, and the accounting covers the algorithm as it runs."""
        protected = self.noise_multiplier > 0 and (self.shots_noise_multiplier > 0 or not self.shots)
        return self.variant == "sound" and protected

    @property
    def votes_scale(self) -> float:
        """σ of the noise of each vote count: the multiplier times the L2 sensitivity, rounded up."""
        scale = self.shots_noise_multiplier * histogram_sensitivity(self.adjacency)
        return math.nextafter(scale, math.inf) if scale else 0.0

    def votes_event(self) -> DpEvent:
        """The event of the votes of all labels, a vector of which a record moves one count, or two when replaced."""
        return _gaussian(sum_sensitivity(self.adjacency) * self.shots_noise_multiplier)

    def vectors_event(self) -> DpEvent:
        """The event of the vectors of all labels and blocks.

        Accountants assume a contribution of length 1 of each unit and double it under replace_one, as the sums do. As
        published, the noise is half of that under replace_one, and the sample is public, so neither helps the event.
        """
        if self.variant == "as_published":
            # noise is drawn of σ = noise_multiplier·√L·C/n, from a known sample
            return dp_event.NonPrivateDpEvent() if self.rows_shift else _gaussian(self.noise_multiplier)
        item = _gaussian(sum_sensitivity(self.adjacency) * self.noise_multiplier)
        if self.sample is None:
            return item
        parts = tuple(dp_event.SampledWithoutReplacementDpEvent(n, self.sample, item) for n in self.sizes.values())
        return parts[0] if len(parts) == 1 else ParallelDpEvent(parts, partition_is_public=True)

    def plan(self) -> DpEvent:
        """The event that a whole run charges, in the ledger's canonical form; known before any data are read."""
        parts = [(self.vectors_event(), 1)]
        return events.compose([(self.votes_event(), 1), *parts] if self.shots else parts)

    def published_plan(self) -> DpEvent:
        """The event by the paper's accounting: C/n under replace_one, amplified by the share of the first label."""
        doubled = sum_sensitivity(self.adjacency)  # cancels the accountants' doubling
        item = _gaussian(doubled * self.noise_multiplier)
        if self.sample is not None:
            item = dp_event.SampledWithoutReplacementDpEvent(next(iter(self.sizes.values())), self.sample, item)
        votes = _gaussian(doubled * self.votes_scale)  # of sensitivity 1
        return events.compose([(votes, 1), (item, 1)] if self.shots else [(item, 1)])

    def negatives_of(self, slotting_ids: Iterable[str], count: int) -> Integers:
        """The index of each record's negative among `count`, by a hash of the record's own id; shape (records,)."""
        key = hashlib.sha256(f"dataset vectors {self.seed}".encode()).digest()
        return np.fromiter((keyed_hash(key, "negative", item) % count for item in slotting_ids), dtype=np.int64)

    def shape(self, writer: ShotWriter, prompts: Iterable[Sequence[int]]) -> StateShape:
        """The shape of all forward passes that compute states, given the prompts of all labels."""
        from dpassay.mechanisms.dataset_vectors.states import shape_of

        model, length = writer.model, max(map(len, prompts)) + writer.longest_record
        blocks = self.blocks_of(model.network)
        return shape_of(model.network, model.vocabulary_size, blocks, texts=self.largest_sum, length=length)

    def check(self, records: Sequence[Record], writer: ShotWriter) -> None:
        """Checks that these records and this model can be run, before anything is charged or written.

        Raises:
            ValueError: one line, which reveals nothing about any record.
        """
        members = evolution_run.by_label(records, self.labels)
        if self.sample is not None and any(len(members[label]) != size for label, size in self.sizes.items()):
            raise ValueError(
                "a sample needs the exact number of records of each label, but the data have another number than the "
                "public one; correct it, or leave sample out"
            )
        writer.model.check_modules()
        self.blocks_of(writer.model.network)
        for label in self.sizes:
            writer.prompt(label, (), self.shots)
        load_embedder(self.embedder)  # fails early if it is not on this machine

    def release(
        self,
        records: Sequence[Record],
        writer: ShotWriter,
        run: Run,
        *,
        journal: Journal,
        progress: Callable[[int, int], None] | None = None,
        source: Source = OS_ENTROPY,
        executor: Executor = THIS_PROCESS,
    ) -> DatasetVectorsResult:
        """Releases shots and vectors, or resumes an interrupted run.

        Args:
            records: private.
            writer: of candidates and negatives; it sees no record, but its model computes states of records.
            run: of a ledger, begun with `plan()`. Each release is charged before its noise is drawn, and only committed
                values are used; the caller finishes the run.
            journal: of candidates and negatives.
            progress: called with the number of finished steps (texts written, records read) and their number.
            source: of the noise and the sample. If it is recorded, the run must say so.
            executor: where states of records are computed. Noise is drawn in this process.

        Raises:
            ValueError: if records, model or parameters are invalid, or differ from those of the interrupted run.
        """
        charged.check_run(run, self.plan(), source)
        self.check(records, writer)
        embedder = load_embedder(self.embedder)
        public = (self, writer, writer.model.fingerprint, writer.model.dtype, embedder.fingerprint)
        evolution_run.note_inputs(run, records, public)
        return VectorRelease(self, records, writer, embedder, run, journal, source, progress, executor).result()


def _gaussian(noise_multiplier: float) -> DpEvent:
    return dp_event.GaussianDpEvent(noise_multiplier) if noise_multiplier else dp_event.NonPrivateDpEvent()


VOTES, ROWS, VECTORS = "votes", "rows", "vectors"
"""Stages of a run in its ledger."""

_PUBLIC = ("norms", "clips")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DatasetVectorsResult:
    """What a run released. If the mechanism is releasable, all of it may be published.

    Attributes:
        shots: of each label, best first.
        votes: the noisy votes of each label's candidates, in the order of their texts; empty without shots.
        negatives: the public texts of each label from which records differ.
        means: the noisy mean difference of each label, shape (blocks, d).
        norms: the mean length of a negative's states in each block, of each label; public.
        blocks: the decoder blocks, counted from 0.
        clips: C of each block, of each label.
        exact: whether the states of a record were verified, bit for bit, not to depend on others.
    """

    shots: Mapping[str | None, tuple[str, ...]]
    votes: Mapping[str | None, Floats]
    negatives: Mapping[str | None, tuple[str, ...]]
    means: Mapping[str | None, Floats]
    norms: Mapping[str | None, tuple[float, ...]]
    blocks: tuple[int, ...]
    clips: Mapping[str | None, tuple[float, ...]]
    exact: bool


class VectorRelease:
    """The two releases of one call, and the public texts that they need."""

    def __init__(
        self,
        mechanism: DatasetVectors,
        records: Sequence[Record],
        writer: ShotWriter,
        embedder: Embedder,
        run: Run,
        journal: Journal,
        source: Source,
        progress: Callable[[int, int], None] | None,
        executor: Executor,
    ) -> None:
        self.executor = executor
        self.mechanism, self.records, self.writer, self.embedder = mechanism, records, writer, embedder
        self.run, self.journal, self.source = run, journal, source
        self.members = evolution_run.by_label(records, mechanism.labels)
        self.blocks = mechanism.blocks_of(writer.model.network)
        each = (mechanism.candidates if mechanism.shots else 0) + 2 * mechanism.negatives
        self._total = len(mechanism.sizes) * each + len(records)
        self._done, self._progress = 0, progress or (lambda done, total: None)

    def result(self) -> DatasetVectorsResult:
        sizes = self.mechanism.sizes
        shots: dict[str | None, tuple[str, ...]] = dict.fromkeys(sizes, ())
        votes: dict[str | None, Floats] = {}
        candidates: dict[str | None, list[str]] = {}
        if self.mechanism.shots:
            candidates = {label: self._candidates(label) for label in sizes}
            votes = self._noisy_votes(candidates)
            for label, counts in votes.items():
                best = np.argsort(-counts, kind="stable")[: self.mechanism.shots]
                shots[label] = tuple(candidates[label][index] for index in best)
        prompts = {label: self.writer.prompt(label, shots[label], self.mechanism.shots) for label in sizes}
        negatives = {
            label: self._written(label, "negative", self.mechanism.negatives, prompts[label]) for label in sizes
        }
        shape = self.mechanism.shape(self.writer, prompts.values())
        self._note_shape(shape)
        value = self.noisy_sums(prompts, negatives, candidates, shape)
        norms, clips = (
            {label: tuple(item) for label, item in zip(sizes, value[name], strict=True)} for name in _PUBLIC
        )
        sums = map(evolution_run.unpacked, value["sums"])
        means = {
            label: release.means(noisy.reshape(len(self.blocks), -1), clips[label], self.mechanism.divisor(label))
            for label, noisy in zip(sizes, sums, strict=True)
        }
        return DatasetVectorsResult(
            shots=shots,
            votes=votes,
            negatives={label: tuple(texts) for label, texts in negatives.items()},
            means=means,
            norms=norms,
            blocks=self.blocks,
            clips=clips,
            exact=bool(value["exact"]),
        )

    def _count(self, steps: int = 1) -> None:
        self._done += steps
        self._progress(min(self._done, self._total), self._total)

    def _candidates(self, label: str | None) -> list[str]:
        """Different candidates of a label, at least as many as shots."""
        prompt = self.writer.prompt(label, (), self.mechanism.shots)
        texts = list(dict.fromkeys(self._written(label, "candidate", self.mechanism.candidates, prompt)))
        if len(texts) < self.mechanism.shots:
            raise WriterError(
                f"the model wrote only {len(texts)} different candidates, but {self.mechanism.shots} shots are chosen "
                "among them; raise candidates or temperature"
            )
        return texts

    def _written(self, label: str | None, stage: str, count: int, prompt: Sequence[int]) -> list[str]:
        """Texts of a stage, from the journal if they are there; those that stay empty are left out."""
        return journalled(
            lambda seeds: self.writer.texts(prompt, seeds),
            self.journal,
            label,
            stage,
            count,
            seed=self.mechanism.seed,
            finished=self._count,
        )

    def _noisy_votes(self, candidates: Mapping[str | None, list[str]]) -> dict[str | None, Floats]:
        vectors = {label: all_embedded(self.embedder, texts) for label, texts in candidates.items()}

        def drawn(label: str | None) -> str:
            pieces = embedded(self.embedder, Texts(RecordsAt(self.records, self.members[label])))
            scale = self.mechanism.votes_scale
            return evolution_run.packed(release.noisy_votes(pieces, vectors[label], scale, self.source))

        charge = Charge(key=VOTES, stage=VOTES, event=self.mechanism.votes_event())
        return evolution_run.released_votes(self.run, charge, vectors, drawn)

    def _note_shape(self, shape: StateShape) -> None:
        """Commits the shape of forward passes, and whether rows are exact at it, before sums are computed.

        Raises:
            RunMismatchError: if sums of the interrupted run would now be computed at another shape than it noted.
        """
        noted = {"exact": shape.exact, "rows": shape.rows, "length": shape.length}
        if charged.committed_value(self.run, ROWS, noted) != noted and self.run.outcome(VECTORS) is None:
            raise charged.RunMismatchError(
                "the interrupted run noted another shape of forward passes: this machine computes rows in another way; "
                f"{charged.ELSEWHERE}"
            )

    def noisy_sums(
        self,
        prompts: Mapping[str | None, Sequence[int]],
        negatives: Mapping[str | None, Sequence[str]],
        candidates: Mapping[str | None, Sequence[str]],
        shape: StateShape,
    ) -> dict[str, Any]:
        from dpassay.mechanisms.dataset_vectors.differences import Differences

        mechanism = self.mechanism
        scale = release.noise_scale(
            mechanism.noise_multiplier,
            len(self.blocks),
            mechanism.adjacency,
            as_published=mechanism.variant == "as_published",
        )

        def drawn() -> dict[str, Any]:
            sums, norms, clips = [], [], []
            for label, prompt in prompts.items():
                result = Differences(mechanism, self.writer, prompt, negatives[label], shape)
                self._count(len(negatives[label]))
                norms.append(result.norms())
                clips.append(result.clips(candidates.get(label, ())))
                exact = result.clipped_sum(self._used(label), clips[-1], self.executor, self._count)
                noisy = release.with_noise(exact, scale, self.source)
                sums.append(evolution_run.packed(noisy.ravel()))
            return {"texts": public, "exact": shape.exact, "norms": norms, "clips": clips, "sums": sums}

        charge = Charge(key=VECTORS, stage=VECTORS, event=mechanism.vectors_event())
        public = [
            hashlib.sha256(repr((prompts[label], negatives[label])).encode("utf-8", "surrogatepass")).hexdigest()
            for label in prompts
        ]
        value: dict[str, Any] = charged.released_value(self.run, charge, drawn)
        if value["texts"] != public:
            raise charged.RunMismatchError(
                "the interrupted run's vectors are for other negatives: its journal is missing or was changed; "
                f"{charged.ELSEWHERE}"
            )
        return value

    def _used(self, label: str | None) -> RecordsAt:
        """The records of a label that are summed."""
        members, sample = self.members[label], self.mechanism.sample
        if sample is not None:
            if self.mechanism.variant == "as_published":  # with a public seed
                drawn = np.random.default_rng(self.mechanism.seed).choice(len(members), sample, replace=False)
                members = members[np.sort(drawn)]
            else:
                members = members[release.drawn_sample(len(members), sample, self.source)]
        return RecordsAt(self.records, members)
