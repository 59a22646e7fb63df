"""Several noisy releases of counts in which a secret occurs, as one product of dominating pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from cupel.accounting.bounds import Interval
from cupel.accounting.poisson_binomial import Occurrences

if TYPE_CHECKING:
    from cupel.accounting.dominating_pair import DominatingPair

_UNIT = 2.0**-53
_WIDTH = 1e-5  # relative; ten times wider would be hardly faster


class Product(NamedTuple):
    """Releases one after another. P is at most e^drift times the pair's and `lost` besides, at least e^−drift times it.

    Attributes:
        pair: of the laws' weights, normalised; P over Q is its direction "remove". None where nothing was released.
        drift: log of the largest ratio of the weights of P and of the pair.
        lost: probability under P that is counted as certain discovery.
    """

    pair: DominatingPair | None
    drift: float
    lost: float

    def blowup(self, p: float) -> Interval:
        """sup{P(E): Q(E) ≤ p}, for p in [0, 1]."""
        inner = Interval(p, p) if self.pair is None else self.pair.blowup(p, direction="remove", width=_WIDTH)
        lower = inner.lower * math.exp(-self.drift) * (1 - 16 * _UNIT)
        upper = (inner.upper * math.exp(self.drift) + self.lost) * (1 + 16 * _UNIT)
        return Interval(max(p, lower), max(p, min(1.0, upper)))

    def delta(self, epsilon: float) -> Interval:
        """sup P(E) − e^ε Q(E)."""
        if self.pair is None:
            return Interval(0.0, self.lost)
        later, sooner = math.nextafter(epsilon + self.drift, math.inf), math.nextafter(epsilon - self.drift, -math.inf)
        lower = self.pair.delta(later, direction="remove", width=_WIDTH).lower
        upper = self.pair.delta(sooner, direction="remove", width=_WIDTH).upper
        grown = (upper * math.exp(self.drift) + self.lost) * (1 + 16 * _UNIT)
        return Interval(lower * math.exp(-self.drift) * (1 - 16 * _UNIT), min(1.0, grown))

    def epsilon(self, delta: float) -> Interval:
        """The least ε ≥ 0 with P(E) ≤ e^ε Q(E) + δ for every E, for δ in (0, 1)."""
        scale = math.exp(self.drift) * (1 + 16 * _UNIT)
        left, more = (delta - self.lost) / scale * (1 - 4 * _UNIT), delta * scale
        if self.pair is None:
            return Interval(0.0, 0.0 if left >= 0 else math.inf)
        lower = self.pair.epsilon(more, direction="remove", width=_WIDTH).lower if more < 1 else 0.0
        upper = self.pair.epsilon(left, direction="remove", width=_WIDTH).upper if left > 0 else math.inf
        ends = math.nextafter(lower - self.drift, -math.inf), math.nextafter(upper + self.drift, math.inf)
        return Interval(max(ends[0], 0.0), max(ends[1], 0.0))


def product(releases: Iterable[tuple[Occurrences, float, int]]) -> Product:
    """The product of releases (law, σ, how many of it), each with fresh noise and fresh occurrences.

    Weights are divided by their sum, which lies between (1 − lost)(1 − error) and 1 + error, up to rounding.
    """
    whole: DominatingPair | None = None
    drift = lost = 0.0
    for law, sigma, count in releases:
        rounding = (law.weights.size + 16) * _UNIT
        drift += count * (2.1 * law.error + rounding + 1.1 * law.lost)
        lost += count * law.lost * (1 + rounding)
        pair = _pair(law, sigma)
        if pair is not None:
            many = pair.self_compose(count) if count > 1 else pair
            whole = many if whole is None else whole.compose(many)
    return Product(whole, drift, lost)


def _pair(law: Occurrences, sigma: float) -> DominatingPair | None:
    from cupel.accounting.dominating_pair import DominatingPair

    occurs = law.counts > 0
    if not occurs.any():
        return None
    weights = law.weights / law.weights.sum()
    if sigma == 0:
        seen = float(weights[occurs].sum())
        return DominatingPair.finite([float(weights[~occurs].sum()), seen], [1.0, 0.0])
    return DominatingPair.gaussian_mixture(weights.tolist(), law.counts.tolist(), sigma)
