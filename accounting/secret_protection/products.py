"""Several noisy releases of counts in which a secret occurs, as one product of dominating pairs.

Proof: docs/proofs/secret-protection-numerics.md, Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpassay.accounting.bounds import Interval
from dpassay.accounting.secret_protection.poisson_binomial_laws import Occurrences

if TYPE_CHECKING:
    from dpassay.accounting.lattice.pairs import DominatingPair

_UNIT = 2.0**-53
_CLIP = 24.0
"""Counts above this many σ are replaced by it."""
_CLIP_TAIL = 2e-33  # Φ̄(12) is 1.78e-33; the rest covers the rounding of 24σ
WIDTH = 1e-5  # relative


class Product(NamedTuple):
    """Several releases as one pair. P is at most e^log_weight_error times that of the pair, plus `lost_mass`.

    P is also at least e^−log_weight_error times that of the pair.
    """

    # of the normalised weights; P over Q is its direction "remove". None if nothing was released.
    pair: DominatingPair | None
    log_weight_error: float  # log of the largest ratio of the weights of P to those of the pair
    lost_mass: float  # probability under P that is treated as revealing the secret
    clipped_rounds: int  # the number of rounds in which counts above 24σ are replaced by 24σ

    def blowup(self, p: float, width: float = WIDTH) -> Interval:
        """sup{P(E): Q(E) ≤ p} for p in [0, 1], to a relative width if it can be met."""
        inner = Interval(p, p) if self.pair is None else self.pair.blowup(p, direction="remove", width=width)
        lower = inner.lower * math.exp(-self.log_weight_error) * (1 - 16 * _UNIT)
        eta = self.clipped_rounds * _CLIP_TAIL
        closer = inner.upper * (1 + eta / p) + eta if eta and p else inner.upper if not eta else 1.0
        upper = (closer * math.exp(self.log_weight_error) + self.lost_mass) * (1 + 16 * _UNIT)
        return Interval(max(p, lower), max(p, min(1.0, upper)))

    def delta(self, epsilon: float) -> Interval:
        """sup P(E) − e^ε Q(E)."""
        if self.pair is None:
            return Interval(0.0, self.lost_mass)
        later, sooner = (
            math.nextafter(epsilon + self.log_weight_error, math.inf),
            math.nextafter(epsilon - self.log_weight_error, -math.inf),
        )
        lower = self.pair.delta(later, direction="remove", width=WIDTH).lower
        upper = self.pair.delta(sooner, direction="remove", width=WIDTH).upper
        eta = self.clipped_rounds * _CLIP_TAIL * (1 + math.exp(min(epsilon, 700.0)))
        grown = ((upper + eta) * math.exp(self.log_weight_error) + self.lost_mass) * (1 + 16 * _UNIT)
        return Interval(lower * math.exp(-self.log_weight_error) * (1 - 16 * _UNIT), min(1.0, grown))

    def epsilon(self, delta: float) -> Interval:
        """The least ε ≥ 0 with P(E) ≤ e^ε Q(E) + δ for every E, for δ in (0, 1)."""
        scale = math.exp(self.log_weight_error) * (1 + 16 * _UNIT)
        left, more = (delta - self.lost_mass) / scale * (1 - 4 * _UNIT), delta * scale
        if self.pair is None:
            return Interval(0.0, 0.0 if left >= 0 else math.inf)
        lower = self.pair.epsilon(more, direction="remove", width=WIDTH).lower if more < 1 else 0.0
        upper = self._upper_epsilon(left) if left > 0 else math.inf
        ends = (
            math.nextafter(lower - self.log_weight_error, -math.inf),
            math.nextafter(upper + self.log_weight_error, math.inf),
        )
        return Interval(max(ends[0], 0.0), max(ends[1], 0.0))

    def _upper_epsilon(self, delta: float) -> float:
        """An ε with δ′(ε) + η(1 + e^ε) ≤ δ for the pair: first with δ/2 in place of the sum, whose ε is no smaller."""
        assert self.pair is not None
        if not self.clipped_rounds:
            return self.pair.epsilon(delta, direction="remove", width=WIDTH).upper
        larger = self.pair.epsilon(delta / 2, direction="remove", width=WIDTH).upper
        eta = self.clipped_rounds * _CLIP_TAIL * (1 + math.exp(min(max(larger, 0.0), 700.0))) * (1 + 16 * _UNIT)
        if not eta <= delta / 2:
            return math.inf
        return min(larger, self.pair.epsilon((delta - eta) * (1 - 4 * _UNIT), direction="remove", width=WIDTH).upper)


def product(releases: Iterable[tuple[Occurrences, float, int]]) -> Product:
    """The product of releases (law, σ, count), each with fresh noise and fresh occurrences.

    Weights are divided by their sum, which lies between (1 − lost_mass)(1 − error) and 1 + error, up to rounding.
    """
    whole: DominatingPair | None = None
    log_weight_error = lost_mass = 0.0
    clipped_rounds = 0
    for law, sigma, count in releases:
        rounding = (law.weights.size + 16) * _UNIT
        log_weight_error += count * (2.1 * law.error + rounding + 1.1 * law.lost_mass)
        lost_mass += count * law.lost_mass * (1 + rounding)
        clipped_rounds += count if 0 < sigma * _CLIP < law.counts[-1] else 0
        pair = _pair(law, sigma)
        if pair is not None:
            many = pair.self_compose(count) if count > 1 else pair
            whole = many if whole is None else whole.compose(many)
    return Product(whole, log_weight_error, lost_mass, clipped_rounds)


def _pair(law: Occurrences, sigma: float) -> DominatingPair | None:
    from dpassay.accounting.lattice.pairs import DominatingPair

    occurs = law.counts > 0
    if not occurs.any():
        return None
    weights = law.weights / law.weights.sum()
    if sigma == 0:
        seen = float(weights[occurs].sum())
        return DominatingPair.finite([float(weights[~occurs].sum()), seen], [1.0, 0.0])
    return DominatingPair.gaussian_mixture(weights.tolist(), np.minimum(law.counts, _CLIP * sigma).tolist(), sigma)
