"""Several next-token predictions become one: medians or means of clipped logits, ready to be sampled and accounted.

Clipped logits are whole multiples of 2⁻²⁴ (`ex_post.GRID`), so that medians and sums do not depend on the order of the
records, and a record that is absent leaves no rounding behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupel.accounting.adjacency import Adjacency
from cupel.accounting.medians import GRID, Cost, Medians, clip_logits, clip_steps
from cupel.mechanisms import selection
from cupel.mechanisms.randomness import Source

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One slot's law of the next token: softmax(scores/temperature), floored at 2·clip below its largest score.

    Attributes:
        scores: shape (V,). For a mean they are sums, and clip and temperature carry the denominator, so that no
            division rounds.
        clip: c, times the denominator of a mean.
        temperature: τ, likewise.
        batch: shape (B, V), what was aggregated: clipped logits as int32 numbers of grid steps, or raw logits without a
            protection.
        medians: what the costs of a median are computed from.
    """

    scores: Floats
    clip: float
    temperature: float
    batch: NDArray[np.int32] | NDArray[np.floating]
    medians: Medians | None = None

    @property
    def clipped(self) -> NDArray[np.floating]:
        """Shape (B, V), what was aggregated: clipped logits, or raw ones without a protection."""
        if np.issubdtype(self.batch.dtype, np.integer):
            return np.asarray(self.batch * GRID, dtype=np.float64)
        return np.asarray(self.batch, dtype=np.float64)

    def draw(self, source: Source) -> int:
        """A token of this law."""
        return selection.draw(self.scores, clip=self.clip, temperature=self.temperature, source=source)

    def log_probability(self, token: int) -> float:
        """log p(token)."""
        return selection.log_probability(self.scores, token, clip=self.clip, temperature=self.temperature)


def median(
    logits: NDArray[np.floating],
    fallback: NDArray[np.floating] | None,
    *,
    clip: float,
    temperature: float,
    adjacency: Adjacency,
) -> Aggregate:
    """The coordinate-wise median of a slot's clipped logits.

    Args:
        logits: shape (B, V), raw, B ≥ 0.
        fallback: shape (V,), raw public logits that an empty slot releases; needed for B ≤ 1.
        clip: c.
        temperature: τ.
        adjacency: of the costs.
    """
    steps = clip_steps(logits, clip)
    public = None if fallback is None else clip_logits(fallback, clip)
    medians = Medians.of_steps(steps, clip=clip, adjacency=adjacency, fallback=public)
    return Aggregate(medians.median, clip, temperature, steps, medians)


def median_cost(aggregate: Aggregate, token: int, *, replaced: bool, rounding: float) -> Cost:
    """What a sampled token cost: the exact cost at the medians' adjacency, the rounding of the sampler included.

    Args:
        aggregate: of `median`.
        token: that was sampled.
        replaced: a removal may also *replace* a row (contexts of several records, pieces of a fixed size): the costs
            are then the larger of add_remove and replace_one.
        rounding: `selection.selection_rounding`.
    """
    assert aggregate.medians is not None
    cost = aggregate.medians.costs(token, aggregate.temperature, rounding=rounding)
    if not replaced:
        return cost
    relations = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
    both = [aggregate.medians.costs(token, aggregate.temperature, kind, rounding=rounding) for kind in relations]
    return Cost(max(c.u_minus for c in both), max(c.u_plus for c in both), cost.gamma)


def mean(
    logits: NDArray[np.floating],
    anchor: NDArray[np.floating] | None,
    *,
    clip: float,
    temperature: float,
    denominator: int,
) -> Aggregate:
    """The sum of a slot's clipped logits over a fixed public denominator; zero, the uniform law, for an empty slot.

    Args:
        logits: shape (B, V), raw, B ≥ 0.
        anchor: shape (V,), raw public logits that are always added, or None.
        clip: c.
        temperature: τ.
        denominator: s, public.
    """
    steps = clip_steps(logits, clip)
    scores = steps.sum(axis=0, dtype=np.int64) * GRID  # exact in float64 up to 2²³ rows
    if anchor is not None:
        scores += clip_logits(anchor, clip)
    return Aggregate(scores, clip * denominator, temperature * denominator, steps)


def single(logits: NDArray[np.floating], row: NDArray[np.floating], *, temperature: float) -> Aggregate:
    """One record's own softmax, without clip and without protection.

    Args:
        logits: shape (B, V), raw, of all records of the slot.
        row: shape (V,), the logits that are sampled from; probabilities below e⁻⁴⁰ of the largest are raised to that.
        temperature: τ.
    """
    return Aggregate(np.asarray(row, dtype=np.float64), 20 * temperature, temperature, logits)
