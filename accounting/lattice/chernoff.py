"""Chernoff's bound on δ(ε) of a product, for values far below the reach of sums in float64.

For λ > 0, δ(ε) is at most λ^λ/(1 + λ)^{1+λ} e^{−λε} Π E e^{λL}, plus the probability that some loss exceeds the largest
one that the moments include.

Proof: docs/proofs/lattice.md, Theorem 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpassay.accounting.lattice.laws import _EXP, UNIT, Law
from dpassay.base.arrays import Floats

_RATIO = 1.002
_HIGHEST = 650.0


def tail_bound(laws: Sequence[tuple[Law, int]], epsilon: float) -> float:
    """An upper bound on δ(ε), ε > 0, of a composition: the least over many λ and many largest losses."""
    tails = [_tail(law) for law, _ in laws]
    cuts = np.append(epsilon * np.geomspace(1 / 64, 64, 25), math.inf)
    counted = _Counted.of(laws, tails, cuts)
    tilts = np.geomspace(1e-2, 1e6, 65)
    for _ in range(2):
        exponents, sizes = counted.moments(tilts)
        factors = tilts * np.log(tilts) - (1 + tilts) * np.log1p(tilts) - tilts * epsilon
        exponents, sizes = exponents + factors[:, None], sizes + (tilts * (epsilon + np.log1p(tilts) + 1))[:, None]
        bounds = np.exp(np.minimum(exponents + 32 * UNIT * (sizes + 1), 0.0)) + counted.beyond
        best = int(np.argmin(bounds.min(axis=1)))
        tilts = np.geomspace(tilts[max(best - 1, 0)], tilts[min(best + 1, tilts.size - 1)], 17)
    return min(1.0, float(bounds.min()) * (1 + (16 + 4 * len(laws)) * UNIT) + 1e-305)


def tail_bound_epsilon(laws: Sequence[tuple[Law, int]], delta: float) -> float:
    """An upper bound on ε(δ) of a composition, from the same moments; inf if they give none.

    For each λ and each largest loss, it is the ε at which Chernoff's bound equals what that loss leaves of δ.
    """
    tails = [_tail(law) for law, _ in laws]
    shares = np.array([0.9, 0.5, 0.1, 1e-2, 1e-4, 1e-8])
    cuts = [math.inf]
    for share in shares:  # a loss that some mechanism exceeds with probability at most this share of δ, in all
        indices = [
            int(np.count_nonzero(above * count * len(laws) > share * delta))
            for (_, above), (_, count) in zip(tails, laws, strict=True)
        ]
        ends = [losses[min(index, losses.size - 1)] for (losses, _), index in zip(tails, indices, strict=True)]
        cuts.append(float(max(ends)))
    counted = _Counted.of(laws, tails, np.array(cuts))
    left = delta * (1 - 1e-12) - counted.beyond * (1 + 1e-12) - 1e-305
    if not (left > 0).any():
        return math.inf
    tilts, best = np.geomspace(1e-2, 1e6, 65), math.inf
    for _ in range(3):
        exponents, sizes = counted.moments(tilts)
        factors = tilts * np.log(tilts) - (1 + tilts) * np.log1p(tilts)
        room = 64 * UNIT * (sizes + (tilts * (np.log1p(tilts) + 1))[:, None] + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = (exponents + factors[:, None] + room - np.log(left)) / tilts[:, None]
        bounds = np.where(left > 0, bounds, math.inf) * (1 + 8 * UNIT)
        best = min(best, float(bounds.min()))
        index = int(np.argmin(bounds.min(axis=1)))
        tilts = np.geomspace(tilts[max(index - 1, 0)], tilts[min(index + 1, tilts.size - 1)], 17)
    return max(best, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Laws with losses up to some cuts; larger losses count as infinite."""

    # for each law its losses, bounds on the mass beyond them, the indices of the cuts, and its count.
    parts: list[tuple[Floats, Floats, NDArray[np.intp], int]]
    beyond: Floats  # a bound on the probability of a loss beyond each cut

    @classmethod
    def of(cls, laws: Sequence[tuple[Law, int]], tails: Sequence[tuple[Floats, Floats]], cuts: Floats) -> _Counted:
        parts, beyond = [], np.zeros(cuts.size)
        for (losses, above), (_, count) in zip(tails, laws, strict=True):
            index = np.searchsorted(losses, cuts, side="right") - 1
            beyond += count * np.where(index < 0, 1.0, above[index])
            parts.append((losses, above, np.maximum(index, 0), count))
        return cls(parts, beyond)

    def moments(self, tilts: Floats) -> tuple[Floats, Floats]:
        """Bounds on Σ n log E[e^{λL}; L ≤ cut] at each λ (rows) and cut, and the size of the rounded terms."""
        exponents, sizes = np.zeros((tilts.size, self.beyond.size)), np.zeros((tilts.size, 1))
        for losses, above, index, count in self.parts:
            moments, room = _log_moments(losses, above, tilts, index)
            exponents, sizes = exponents + count * moments, sizes + count * room
        return exponents, sizes


def _tail(law: Law) -> tuple[Floats, Floats]:
    """Increasing losses, and bounds on the probability under P of a larger loss.

    The grid is dense near 0, where the losses of mechanisms that are composed many times lie, and where the law itself
    is.
    """
    around = np.geomspace(1e-12, _HIGHEST, int(math.log(_HIGHEST / 1e-12) / math.log(_RATIO)))
    low, high = law.support(1e-12, 1e-290)
    losses = np.unique(np.concatenate([-around, [0.0], around, np.linspace(low, high, 4001)]))
    losses = losses[(losses >= max(-_HIGHEST, low)) & (losses <= high)]
    if law.upper_only:  # H at b − g is at least 1 − e^{−g} of the mass above b
        above = np.min(
            [law.hockey_stick_upper(losses - gap) / -math.expm1(-gap) for gap in (0.02, 0.1, 0.5, 2.0)], axis=0
        )
        above = above * (1 + 1e-11)  # losses minus a gap are rounded
    else:
        known = law.tails(losses)
        losses = losses + known.shift
        above = known.p_above * (1 + known.error) + known.p_slack
    losses = np.maximum.accumulate(losses)
    return losses, np.minimum.accumulate(np.minimum(above + 1e-305, 1.0))


def _log_moments(losses: Floats, above: Floats, tilts: Floats, indices: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Upper bounds on log E[e^{λL}; L ≤ b] at each λ (rows) and b = losses[place], and the size of the rounded terms.

    By parts, with the mass between two losses put at the larger: e^{λb₀} + Σ (e^{λb_{i+1}} − e^{λb_i}) P(L > b_i).
    """
    results, sizes = [], []
    log_above, gaps = np.log(np.maximum(above[:-1], 1e-320)), np.diff(losses)
    starts = np.unique(np.append(0, indices[indices < losses.size - 1] + 1))
    for tilt in tilts:
        terms = tilt * losses[1:] + np.log(np.maximum(-np.expm1(-tilt * gaps), 1e-320)) + log_above
        terms = np.append(tilt * losses[0], terms)
        top = np.maximum.reduceat(terms, starts)
        sums = np.add.reduceat(np.exp(terms - np.repeat(top, np.diff(np.append(starts, terms.size)))), starts)
        upto = np.logaddexp.accumulate(top + np.log(sums))
        results.append(upto[np.searchsorted(starts, indices, side="right") - 1])
        sizes.append(_EXP / UNIT * starts.size + terms.size + float(np.abs(terms).max()))
    return np.array(results), np.array(sizes)[:, None]
