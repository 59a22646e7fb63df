"""Leave-one-out loss: the log-likelihood ratio of the released tokens with and without each record.

This is the strongest attacker for one data set and one output: it sees the logits of every row. `LeaveOneOut` observes
a run and compares, token by token, with the same batch with one row removed. `reruns` removes the record from the whole
pipeline (assignment, batching, counts), so it also detects leaks of fixed-size batching or contexts of several records.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", appendix D.5.2.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpassay.accounting.ex_post.medians import Medians, slack
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.primitives import counts, token_sampler
from dpassay.mechanisms.primitives.charged import other_logits

if TYPE_CHECKING:
    from dpassay.data.records import Record
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.private_inference.generator import PrivateInference
    from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs
    from dpassay.mechanisms.private_inference.transcripts import Generation


_UNIT_ROUNDOFF = 2.0**-53
ROW_MARGIN = 4.0
"""The allowed difference between the logits of scoring and of generation for packed rows, in units of `row_difference`.

`row_difference` is a spot check on public rows, not a bound; that this factor covers other rows is an assumption.
"""

_UNPROTECTED_CLIP = 20.0  # times τ: without protection, the sampler raises probabilities to e^−40 of the largest


class LeaveOneOut:
    """Observes a run and sums, for each record i, log p_D(x) − log p_{D∖i}(x) over the tokens of its slot.

    Rows are contexts of one record each. For ``median`` and ``mean`` the loss is summed over tokens. Without protection
    (``none``) each document is generated from one record of its slot, drawn uniformly, so a document's distribution is
    the mean over its slot's records, and the loss is summed over documents.

    Args:
        records: number of records of the run.
        aggregate: ``median``, ``mean`` or ``none``.
        clip: the largest aggregated logit: c, for centred rows plus the tail; not used for ``none``.
        temperature: τ.
        denominator: s of the mean.
        rounding: a bound on |log p̃(y)/p(y)| between the sampled distribution and the exact softmax. Without protection
            it is computed for each token.

    Raises:
        ValueError: if a parameter is out of range.
    """

    def __init__(
        self,
        records: int,
        *,
        aggregate: str,
        clip: float,
        temperature: float,
        denominator: int | None = None,
        rounding: float = 0.0,
    ) -> None:
        validate.integer(records=records)
        validate.one_of(("median", "mean", "none"), aggregate=aggregate)
        validate.positive(temperature=temperature)
        validate.non_negative(rounding=rounding)
        share = validate.integer(minimum=1, denominator=denominator or 0) if aggregate == "mean" else 1
        self._aggregate, self._rounding = aggregate, rounding
        # Use sums in place of means: clip and temperature include the denominator, so no division rounds.
        self._clip = _UNPROTECTED_CLIP * temperature if aggregate == "none" else clip * share
        self._temperature = temperature * share
        self._losses = np.zeros(records)
        self._errors = np.zeros(records)
        self._slots: dict[int, tuple[int, ...]] = {}
        self._open: dict[int, tuple[int, Floats, Floats]] = {}  # slot → document, log-probability by row, its error

    @classmethod
    def of(cls, mechanism: PrivateInference, records: int) -> Self:
        """The attack on a run of `mechanism` over this many records.

        If batches are cut (as published), a batch with one row removed is not what the pipeline gives for the data with
        one record removed: losses then describe the batch, and only `reruns` compares neighbours.

        Raises:
            ValueError: if removing a row is not removing a unit, or not all terms of the sum are observed. Use `reruns`
                there.
        """
        if mechanism.records_per_context > 1:
            raise ValueError("rows hold several records each, so no row can be removed for a record; use reruns")
        if mechanism.anchor:
            raise ValueError("the anchor of the mean is not observed with the rows; use reruns")
        return cls(
            records,
            aggregate=mechanism.aggregate,
            clip=mechanism.largest_logit,
            temperature=mechanism.temperature,
            denominator=(mechanism.denominator or mechanism.batch_size) if mechanism.aggregate == "mean" else None,
            rounding=0.0 if mechanism.aggregate == "none" else mechanism.rounding,
        )

    def step(
        self,
        *,
        slot: int,
        records: Sequence[int],
        clipped: NDArray[np.floating],
        medians: Medians | None,
        log_probability: float,
        token: int,
        document: int,
        position: int,
        public: NDArray[np.floating] | None = None,
    ) -> None:
        """Adds one released token; see `Observer`."""
        rows = np.asarray(records, dtype=np.int64)
        known = self._slots.setdefault(slot, tuple(records))
        if known != tuple(records):
            raise ValueError("the records of a slot must stay the same, in the same order, during a run")
        if self._aggregate == "none":
            self._unprotected(slot, rows, np.asarray(clipped, dtype=np.float64), token, document)
            return
        if self._aggregate == "median":
            if medians is None:
                raise ValueError("medians must be given if the aggregate is median")
            losses = medians.leave_one_out(token, self._temperature)
            error = medians.slack(self._temperature)
        else:
            losses, error = self._mean(np.asarray(clipped, dtype=np.float64), public, token)
        self._add(rows, losses, error + 2 * self._rounding)

    def part(self) -> Self:
        """The same attack, which has seen nothing; see `PartObserver`."""
        result = copy.copy(self)
        result._losses, result._errors = np.zeros_like(self._losses), np.zeros_like(self._errors)
        result._slots, result._open = {}, {}
        return result

    def merge(self, part: Self) -> None:
        """Adds the losses of records in slots that only `part` saw."""
        part._close()
        self._losses += part._losses
        self._errors += part._errors
        self._slots |= part._slots

    @property
    def losses(self) -> Floats:
        """Shape (records,): the loss of each record, at the end of the run; 0 for records that no slot used."""
        self._close()
        return self._losses.copy()

    @property
    def errors(self) -> Floats:
        """Shape (records,): a bound on the error of each loss, including rounding of the sampled distribution."""
        self._close()
        return self._errors.copy()

    def by_slot(self) -> dict[int, float]:
        """The largest |loss| of a record in each slot; 0 for a slot without records."""
        return self._largest(np.abs(self.losses))

    def errors_by_slot(self) -> dict[int, float]:
        """A bound on the error of each value of `by_slot`."""
        return self._largest(self.errors)

    def _largest(self, values: Floats) -> dict[int, float]:
        return {slot: float(values[list(rows)].max(initial=0.0)) for slot, rows in sorted(self._slots.items())}

    def _add(self, rows: Integers, losses: Floats, error: Floats | float) -> None:
        self._losses[rows] += losses
        # The addition rounds its result by at most half a unit in the last place.
        self._errors[rows] += error + _UNIT_ROUNDOFF * np.abs(self._losses[rows])

    def _mean(self, clipped: Floats, public: NDArray[np.floating] | None, token: int) -> tuple[Floats, float]:
        """Log-ratios of the distributions of Σ z with and without each row; sums are exact on the logits' grid."""
        total = clipped.sum(axis=0) if public is None else clipped.sum(axis=0) + public
        base = self._log_laws(total[None, :], token)
        return base - self._log_laws(total - clipped, token), self._slack(clipped)

    def _unprotected(self, slot: int, rows: Integers, logits: Floats, token: int, document: int) -> None:
        current = self._open.get(slot)
        if current is None or current[0] != document:
            self._close(slot)
            current = (document, np.zeros(len(rows)), np.zeros(len(rows)))
        laws = self._log_laws(logits, token)
        total = current[1] + laws
        # A weight w is an integer, at most 1 below its exact value, and the sum of weights is at least the largest one.
        weight = np.exp(laws) * 2.0**token_sampler.BITS
        rounding = 2 / weight + logits.shape[1] * 2.0**-token_sampler.BITS
        error = current[2] + self._slack(logits) + rounding + _UNIT_ROUNDOFF * np.abs(total)
        self._open[slot] = (document, total, error)

    def _log_laws(self, scores: Floats, token: int) -> Floats:
        """log p(token) under each row of `scores`, shape (rows, V), in the sampled distribution."""
        values = token_sampler.floored(scores, self._clip)
        exponents = (values - values.max(axis=1, keepdims=True)) / self._temperature
        return np.asarray(exponents[:, token] - np.log(np.exp(exponents).sum(axis=1)))

    def _slack(self, rows: Floats) -> float:
        """A bound on the float error of a difference of two `_log_laws`.

        As derived at `ex_post.medians.slack`, with one more rounding in the temperature and fewer in the weights.
        """
        return slack(rows.shape[1], self._clip, self._temperature)

    def _close(self, slot: int | None = None) -> None:
        """Converts the documents observed so far without protection into losses."""
        for index in [slot] if slot is not None else list(self._open):
            if index in self._open:
                _, log_laws, errors = self._open.pop(index)
                self._add(np.array(self._slots[index], dtype=np.int64), *mixture_losses(log_laws, errors))


def mixture_losses(log_laws: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """log mean_j p_j − log mean_{j≠i} p_j for every i, for a document generated from one row drawn uniformly, and
    bounds on their errors, given log p_j and bounds on the error of each; all of shape (B,).

    For a single row both are 0: the document without it (from the public fallback) is not observed here, so nothing is
    shown; `reruns` compares the two.
    """
    count = len(log_laws)
    if count <= 1:
        return np.zeros(count), np.zeros(count)
    without = np.where(np.eye(count, dtype=bool), -np.inf, 0.0)
    ends = []
    for sign in (-1, 1):  # means increase with every p_j
        bounds = log_laws + sign * errors
        whole = special.logsumexp(bounds) - np.log(count)
        ends.append((whole, special.logsumexp(bounds + without, axis=1) - np.log(count - 1)))
    (whole_low, rest_low), (whole_high, rest_high) = ends
    losses = (whole_low + whole_high) / 2 - (rest_low + rest_high) / 2
    spread = (whole_high - whole_low) / 2 + (rest_high - rest_low) / 2
    size = np.abs(log_laws).max() + 2 * np.log(count)
    return np.asarray(losses), np.asarray(spread + 32 * _UNIT_ROUNDOFF * (size + count))


@dataclass(frozen=True, slots=True)
class Loss:
    """A log-likelihood ratio of everything that a run released.

    Attributes:
        value: log p_D(x) − log p_{D∖i}(x).
        error: a bound on its error, assuming that scoring has the logits of generation: bit for bit if the run's rows
            are exact, else to within `ROW_MARGIN` times the model's row difference.
    """

    value: float
    error: float


def reruns(
    mechanism: PrivateInference,
    records: Sequence[Record],
    chosen: Sequence[int],
    model: LanguageModel,
    generation: Generation,
    key: bytes,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor = THIS_PROCESS,
) -> list[Loss]:
    """The losses of everything a run released if one unit at a time, that of each chosen record, is removed from the
    whole pipeline. Other arguments are those of `losses_between`."""
    unit = mechanism.unit
    left_out = (unit.of(records[index]) for index in chosen)
    others = [[record for record in records if unit.of(record) != gone] for gone in left_out]
    return losses_between(mechanism, records, others, model, generation, key, progress, executor)


def losses_between(
    mechanism: PrivateInference,
    records: Sequence[Record],
    others: Sequence[Sequence[Record]],
    model: LanguageModel,
    generation: Generation,
    key: bytes,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor = THIS_PROCESS,
) -> list[Loss]:
    """The losses of everything a run released between its records and each of `others`, such as neighbours.

    Assignment, batching, contexts and noisy counts are those of each data set. Only slots whose contexts differ are
    scored, in parallel, on the workers of `executor`; the others have the same distribution. Mechanism, model,
    generation and key of the batching are those of the run; `progress` is called with the number of steps done and the
    total.

    Raises:
        RunMismatchError: if logits are not those of the run, so that `top_k` leaves out a token that was drawn.
    """
    from dpassay.mechanisms.private_inference import score
    from dpassay.mechanisms.private_inference.slot_inputs import replayed_inputs

    given = (model, key, generation.transcript, executor)
    full, *less = (replayed_inputs(mechanism, data, *given) for data in (records, *others))
    changed = [_changed_slots(full, other) for other in less]
    asked = [(full, slot) for slot in sorted(set().union(*changed))]
    asked += [(other, slot) for other, slots in zip(less, changed, strict=True) for slot in slots]
    scores = score.score(asked, generation.transcript, progress, executor)
    result = dict(zip(asked, scores.tolist(), strict=True))
    if any(result[item] == -math.inf for item in asked if item[0] is full):
        raise other_logits()
    own, error = _count_laws(full, generation), scoring_error(mechanism, model, generation)
    losses = []
    for other, slots in zip(less, changed, strict=True):
        pairs = [(result[full, slot], result[other, slot]) for slot in slots]
        counted = list(zip(own, _count_laws(other, generation), strict=True))
        value = math.fsum(before - without for before, without in [*pairs, *counted])
        # −∞ is the log-probability of a token that `top_k` leaves out without the unit.
        every = [abs(law) for pair in [*pairs, *counted] for law in pair if law > -math.inf]
        magnitude = math.fsum(every) + len(slots)
        tokens = sum(len(generation.transcript.tokens[slot]) for slot in slots)
        losses.append(Loss(value, tokens * error + 2.0**-40 * magnitude))
    return losses


def _changed_slots(full: SlotInputs, other: SlotInputs) -> list[int]:
    """The slots whose contexts differ between two data sets."""
    pairs = zip(full.batches.contexts, other.batches.contexts, strict=True)
    return [slot for slot, (old, new) in enumerate(pairs) if _ids(old, full.records) != _ids(new, other.records)]


def _count_laws(inputs: SlotInputs, generation: Generation) -> list[float]:
    """Log-probabilities of the released counts of clusters and of slots under these records, if any were released.

    They count units, not contexts.
    """
    laws, mechanism = [], inputs.mechanism
    clusters, relation = generation.transcript.cluster_counts, mechanism.adjacency
    if clusters is not None:
        exact, epsilon = inputs.cluster_units(), mechanism.cluster_count_epsilon
        laws.append(counts.log_probability(np.ravel(clusters), exact.ravel(), epsilon=epsilon, adjacency=relation))
    if generation.released_counts is not None:
        released, epsilon = generation.released_counts, mechanism.slot_count_epsilon
        laws.append(counts.log_probability(released, inputs.batches.units, epsilon=epsilon, adjacency=relation))
    return laws


def scoring_error(mechanism: PrivateInference, model: LanguageModel, generation: Generation) -> float:
    """A bound, for one token, on the error of a difference of two scores, compared with the sampled distributions.

    A logit is assumed to be off by at most d: 0 if the run's rows are exact, since scoring uses the same shapes;
    otherwise `ROW_MARGIN` times the model's row difference, a spot check with a factor that is not derived.
    Clipping moves a logit by at most 2d (its own error and that of its row's largest), a median or the mean of at most
    that many rows by no more, and log softmax(·/τ) by at most twice that over τ; two distributions are compared. A
    mean's batch can be larger than its denominator, by a factor of `crowding`. A centred row and the public logits move
    by at most 12d in all: 2d for the row and the public logits each, 6d for the shift that puts their difference about
    0, and 2d for the public logits that are added.
    """
    clip, temperature, rounding = mechanism.largest_logit, mechanism.temperature, 0.0
    if mechanism.aggregate == "none":
        clip, rounding = _UNPROTECTED_CLIP * temperature, token_sampler.selection_rounding(_UNPROTECTED_CLIP, 1.0)
    else:
        rounding = mechanism.rounding
    crowding = 1.0
    if mechanism.aggregate == "mean":
        largest = float(np.max(generation.slot_sizes, initial=0)) + 1
        crowding = max(1.0, largest / (mechanism.denominator or mechanism.batch_size))
    moved = 2 if mechanism.center is None else 12
    forward = 4 * moved * ROW_MARGIN * generation.row_difference * crowding / temperature
    return forward + 2 * rounding + slack(model.vocabulary_size, clip, temperature)


def _ids(contexts: Sequence[Sequence[int]], records: Sequence[Record]) -> list[list[str]]:
    """The contexts of a slot as ids that do not depend on the other records of the data.

    Records with equal content differ only in their order, so their content identifies them.
    """
    return [[records[index].slotting_id for index in context] for context in contexts]
