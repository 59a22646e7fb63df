"""The two stages of training, and how an interrupted one resumes.

Each step of the second stage is charged before its rows are drawn. From time to time its state is written, and the
file's hash committed; a run resumes from the last committed state. The steps after it, which were charged already, are
made anew with other rows and other noise: their results never left the process. A state that was written but not
committed is not used. Between two checkpoints nothing is released.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit
from dpassay.accounting.ledger.run import Run
from dpassay.base.arrays import Floats, Integers
from dpassay.data.tables import Table
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives import charged
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source
from dpassay.mechanisms.two_stage import network
from dpassay.mechanisms.two_stage.descent import Checkpoints, Descent, GradientGrid, clipped, clipped_sum, noisy_mean
from dpassay.mechanisms.two_stage.generator import TwoStage
from dpassay.mechanisms.two_stage.gradients import RowGradients, WeightedRow
from dpassay.mechanisms.two_stage.row_tokens import RowTokens

STEPS, ROWS, INPUTS = "steps", "rows", "inputs"
"""Stages of a run in its ledger."""

SECONDS = 20.0
"""About the time after which a state is written."""

_LONG = 1e100  # the length of a spike before it is clipped

_OF_THE_FIRST_STAGE = (
    "batch_size",
    "learning_rate",
    "weight_decay",
    "value_weight",
    "serializer",
    "shuffle",
    "first_stage",
    "first_steps",
    "lora_rank",
    "precision",
    "seed",
)
"""The fields of `TwoStage` that determine the weights after the first stage."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A fine-tuned model, and the number of rows of one pass; `exact` if a row's gradient was verified, bit for bit,
    not to depend on other rows."""

    model: LanguageModel
    exact: bool
    rows_at_once: int


@dataclass(frozen=True, slots=True)
class Spikes:
    """Records for audits, each with a gradient of one coordinate that is as long as the clip allows, of this sign; 0 if
    the record is not in the data.

    The guarantee is for every function from rows to gradients, so for these, too; no row needs to have such a gradient.
    """

    signs: tuple[int, ...]

    def coordinates(self, size: int) -> Integers:
        """The coordinate of each gradient among `size` of them."""
        return np.arange(len(self.signs), dtype=np.int64) * size // max(1, len(self.signs))

    def clipped_sum(self, chosen: Integers, clip: float, size: int, grid: GradientGrid) -> Integers:
        """The sum of the clipped gradients of some of them, shape (size,); coordinates that are 0 stay 0."""
        total, indices = np.zeros(size, dtype=np.int64), self.coordinates(size)[chosen]
        length = int(clipped(np.array([_LONG]), clip, grid)[0])
        np.add.at(total, indices, length * np.array(self.signs, dtype=np.int64)[chosen])
        return total


class StepObserver(Protocol):
    """Sees what each step of the second stage releases, for audits; its scores are saved in checkpoints, and
    restored."""

    scores: Floats

    def see(self, step: int, released: Floats, training: TwoStageTraining) -> None:
        """Adds a step, counted from 0, to the scores: the noisy mean gradient, by which the weights are not changed
        yet."""


class TwoStageTraining:
    """Both stages of a run, begun or resumed.

    Args:
        mechanism: its parameters.
        model: not changed.
        table: private.
        folder: private, of checkpoints.
        public: of the first stage, if it is ``table``.
        source: of noise and samples.
        seconds: after which a checkpoint is written.
        first: folder of the checkpoints of the first stage, which depend on no private data and may be shared; by
            default `folder`.
        observer: sees all steps of the second stage.
        spikes: records in addition to the table, for audits.
        rows: the largest useful number of rows of one pass, public; by default the expected batch size.

    Raises:
        ValueError: one line, before anything is charged or written, if the model cannot be trained or a row may not fit
            into its context.
    """

    def __init__(
        self,
        mechanism: TwoStage,
        model: LanguageModel,
        table: Table,
        folder: Path,
        *,
        public: Table | None = None,
        source: Source = OS_ENTROPY,
        seconds: float = SECONDS,
        first: Path | None = None,
        observer: StepObserver | None = None,
        spikes: Spikes | None = None,
        rows: int | None = None,
    ) -> None:
        if (mechanism.first_stage == "table") != (public is not None):
            raise ValueError("first_stage: table needs a public table, and the other first stages need none")
        self.spikes = spikes or Spikes(())
        added = len(table.rows) + np.flatnonzero(self.spikes.signs)
        self._present = np.concatenate([np.arange(len(table.rows)), added.astype(np.int64)])
        if mechanism.sampling == "shuffled" and len(self._present) != mechanism.records:
            raise ValueError("shuffled batches need the exact number of records as the public one; correct it")
        model.check_modules()
        self.mechanism, self.table, self.folder, self.source = mechanism, table, folder, source
        self.tokens = RowTokens(model, table.schema, mechanism.serializer)
        self.public, self.public_tokens = public, self.tokens
        if public is not None:
            self.public_tokens = RowTokens(model, public.schema, mechanism.serializer)
        self.model = network.trainable(model, mechanism.lora_rank)
        width = max(self.tokens.width, self.public_tokens.width)
        self.gradients = RowGradients(self.model.network, model.vocabulary_size, width, mechanism.precision)
        self._total = mechanism.steps + (mechanism.first_steps if mechanism.first_stage != "none" else 0)
        self._progress: Callable[[int, int], None] = lambda done, total: None
        self._seconds, self._observer = seconds, observer
        self._rows = mechanism.batch_size if rows is None else rows
        self._first = Checkpoints(first or folder, "first")
        self._first_about = self._first_digest(model)
        self._about = self._digest()

    def run(self, run: Run, progress: Callable[[int, int], None] | None = None) -> Trained:
        """Trains, or resumes an interrupted training.

        Args:
            run: of a ledger, begun with `plan()`. Each step is charged before its rows are drawn; checkpoints are
                committed. The caller finishes the run.
            progress: called with the number of finished steps and their number.

        Raises:
            RunMismatchError: if the interrupted run had other records, another model, schema or parameters, or its
                checkpoint is missing.
        """
        self._progress = progress or self._progress
        charged.check_run(run, self.mechanism.plan(), self.source)
        charged.note(run, INPUTS, self._about, charged.other_inputs("records, another schema, model or parameters"))
        try:
            exact = self.gradients.find(self._rows)
            noted = {"exact": exact, "rows": self.gradients.rows, "width": self.gradients.width}
            mismatch = charged.RunMismatchError(
                "the interrupted run noted another shape of passes: this machine computes rows in another way; "
                f"{charged.ELSEWHERE}"
            )
            charged.note(run, ROWS, noted, mismatch)
            descent = self._descent()
            self._resume(run, descent)
        finally:
            self.gradients.close()
        return Trained(network.finished(self.model), exact, self.gradients.rows)

    def _descent(self) -> Descent:
        named = dict(sorted(self.model.network.named_parameters()))
        trained = {name: weight for name, weight in named.items() if weight.requires_grad}
        return Descent(trained, self.mechanism.learning_rate, self.mechanism.weight_decay)

    def _first_digest(self, model: LanguageModel) -> str:
        """SHA-256 of everything that determines the first stage, which is public."""
        own = {name: getattr(self.mechanism, name) for name in _OF_THE_FIRST_STAGE}
        known = (own, model.fingerprint, model.dtype, self.gradients.width, self.table.schema.model_dump_json())
        results = hashlib.sha256(repr(known).encode("utf-8", "surrogatepass"))
        if self.public is not None:
            table = (self.public.schema.model_dump_json(), self.public.rows)
            results.update(repr(table).encode("utf-8", "surrogatepass"))
        return results.hexdigest()

    def _digest(self) -> str:
        """SHA-256 of everything that determines a run; private."""
        known = (self.mechanism, self._first_about, self.spikes)
        results = hashlib.sha256(repr(known).encode("utf-8", "surrogatepass"))
        for row, name in zip(self.table.rows, self.table.ids, strict=True):
            results.update(hashlib.sha256(repr((name, row)).encode("utf-8", "surrogatepass")).digest())
        return results.hexdigest()

    def _resume(self, run: Run, descent: Descent) -> None:
        """Makes the steps that are left, of both stages."""
        mechanism, checkpoints = self.mechanism, Checkpoints(self.folder, "checkpoint")
        done, known = _last_committed(run, mechanism.steps)
        if done:
            scores = checkpoints.load(done, descent, known)
            if self._observer is not None and scores is not None:
                self._observer.scores = scores
        else:
            self._first_stage(descent)
            descent = self._descent()  # moments of the first stage belong to another loss
        saved = time.monotonic()
        batches = self.batches(done)
        for step in range(done, mechanism.steps):
            key = f"{STEPS}/{step}"
            run.step(charge=Charge(key=key, stage=STEPS, event=mechanism.step_event()))
            released = self.gradient(step, next(batches))
            if self._observer is not None:
                self._observer.see(step, released, self)
            descent.step(released)
            if step + 1 == mechanism.steps or time.monotonic() - saved >= self._seconds:
                scores = None if self._observer is None else self._observer.scores
                sha256 = checkpoints.save(step + 1, descent, self._about, scores)
                commit(run, key, sha256)
                checkpoints.keep(step + 1)
                saved = time.monotonic()
            self._report(step + 1)

    def _report(self, done: int) -> None:
        """Reports finished steps of the second stage."""
        self._progress(self._total - self.mechanism.steps + done, self._total)

    def batches(self, done: int) -> Iterator[Integers]:
        """The records of each step from `done` on: rows of the table, then spikes."""
        mechanism, count = self.mechanism, len(self._present)
        while mechanism.sampling == "poisson":
            yield self._present[self.source.bernoulli(np.full(count, min(1.0, mechanism.rate)))]
        each = count // mechanism.batch_size
        order = self._present
        for step in range(done, mechanism.steps):
            if step % each == 0 or step == done:
                order = np.random.default_rng(self.source.below(2**64)).permutation(self._present)
            yield order[step % each * mechanism.batch_size :][: mechanism.batch_size]

    def gradient(self, step: int, batch: Integers) -> Floats:
        """The released gradient of a step: the noisy mean over a batch."""
        mechanism, columns = self.mechanism, len(self.table.schema.columns)
        rows = [
            mechanism.weighted(
                self.tokens, self.table.rows[index], mechanism.order(step, self.table.ids[index], columns)
            )
            for index in batch[batch < len(self.table.rows)].tolist()
        ]
        if mechanism.loss == "batch":
            rows = coupled(rows, self.gradients.width)
        grid = GradientGrid.of(mechanism.noise_multiplier, mechanism.adjacency)
        size, spikes = self.gradients.size, batch[batch >= len(self.table.rows)] - len(self.table.rows)
        total = clipped_sum(self.gradients.of(rows), mechanism.clip, size, grid)
        if len(spikes):
            total += self.spikes.clipped_sum(spikes, mechanism.clip, size, grid)
        return noisy_mean(total, mechanism.clip, mechanism.batch_size, grid, self.source)

    def _first_stage(self, descent: Descent) -> None:
        """Trains on public rows; steps that were saved are not made again."""
        mechanism, checkpoints = self.mechanism, self._first
        if mechanism.first_stage == "none":
            return
        done, state = checkpoints.latest(self._first_about) or (0, None)
        if state is not None:
            descent.load(state)
        saved = time.monotonic()
        for step in range(done, mechanism.first_steps):
            rng = np.random.default_rng([mechanism.seed, 1, step])
            descent.step(self.gradients.mean([self._public_row(rng) for _ in range(mechanism.batch_size)]))
            if step + 1 == mechanism.first_steps or time.monotonic() - saved >= self._seconds:
                checkpoints.save(step + 1, descent, self._first_about)
                checkpoints.keep(step + 1)
                saved = time.monotonic()
            self._progress(step + 1, self._total)

    def _public_row(self, rng: np.random.Generator) -> WeightedRow:
        """A row of the first stage."""
        if self.public is None:
            row = self.table.schema.uniform(rng)
        else:
            row = self.public.rows[int(rng.integers(len(self.public.rows)))]
        order = rng.permutation(len(row)).tolist() if self.mechanism.shuffle else range(len(row))
        return self.mechanism.weighted(self.public_tokens, row, order)


def coupled(rows: Sequence[WeightedRow], width: int) -> list[WeightedRow]:
    """The rows with the weights of the published loss: divided by the batch's mean number of tokens of each weight."""
    counts: dict[float, int] = {}
    for row in rows:
        for weight in row.weights:
            counts[weight] = counts.get(weight, 0) + 1
    scale = {weight: width * len(rows) / count for weight, count in counts.items()}
    return [dataclasses.replace(row, weights=[weight * scale[weight] for weight in row.weights]) for row in rows]


def _last_committed(run: Run, steps: int) -> tuple[int, str]:
    """The number of steps at the last committed checkpoint, and its SHA-256; 0 if there is none."""
    for step in range(steps, 0, -1):
        known = run.outcome(f"{STEPS}/{step - 1}")
        if known is not None:
            return step, str(known.value)
    return 0, ""


def commit(run: Run, key: str, sha256: str) -> None:
    """Commits a checkpoint.

    Raises:
        RunMismatchError: if another process committed another one.
    """
    try:
        run.step(commit=Commit(key=key, value=sha256))
    except AlreadyCommitted as earlier:
        if earlier.outcome.value != sha256:
            raise charged.RunMismatchError("another process trains the same run; wait for it, then resume") from None
