"""Checks the privacy loss of one outcome against what is certified for its mechanism.

A pure or ex-post ε bounds the loss of every outcome, so a single larger loss contradicts it. A curve δ(ε) allows rare
outcomes with larger losses; `loss_probability` bounds their probability.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import PrivacyProfile
from dpassay.accounting.lattice.pairs import WidthNotMet
from dpassay.accounting.registry import upper_bounds

Profile: TypeAlias = Callable[[Sequence[float]], Sequence[float]]
"""Increasing ε ≥ 0 → certified upper bounds on δ at each of them."""

SIGNIFICANCE_LEVEL = 1e-6
"""A loss contradicts a curve under which its probability, over all comparisons jointly, is below this value."""

_CERTIFYING = ("lattice", "basic", "zcdp", "gdp")
_LARGEST = 1000.0  # larger losses are not distinguished: e^1000 exceeds the floats
_GAPS = tuple(2.0 ** (half / 2) for half in range(-16, 11))  # ℓ − ε, from 1/256 to 32
_ROUNDING = 2.0**-45  # relative error of a dozen float64 operations


def certified_profile(event: DpEvent, *, adjacency: Adjacency | str, unit: Unit) -> Profile:
    """The smallest certified upper bound on δ(ε) of an event, as a function of increasing ε; 1 if there is none."""

    def profile(epsilons: Sequence[float]) -> list[float]:
        asked = PrivacyProfile(tuple(epsilons), (1.0,) * len(epsilons))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WidthNotMet)  # an upper bound is valid however wide its enclosure is
            result = upper_bounds(event, asked, adjacency=adjacency, unit=unit, methods=_CERTIFYING)
        least = dict.fromkeys(epsilons, 1.0)
        for bound in result:
            if bound.rigor.may_support and bound.at is not None:
                least[bound.at] = min(least[bound.at], bound.value)
        return [least[epsilon] for epsilon in epsilons]

    return profile


def loss_probability(loss: float, profile: Profile) -> float:
    """An upper bound on the probability, over x ~ P, that |log P(x)/Q(x)| ≥ `loss`, for neighbours with laws P and Q.

    Let P(E) − e^ε Q(E) ≤ δ(ε) and Q(E) − e^ε P(E) ≤ δ(ε) for every event E, and 0 ≤ ε < ℓ.

    - A = {x: P(x) ≥ e^ℓ Q(x)}. Then Q(A) ≤ e^−ℓ P(A), so δ(ε) ≥ P(A) − e^ε Q(A) ≥ P(A)(1 − e^{ε−ℓ}), and
      P(A) ≤ δ(ε)/(1 − e^{ε−ℓ}).
    - B = {x: Q(x) ≥ e^ℓ P(x)}. Then Q(B) ≥ e^ℓ P(B), so δ(ε) ≥ Q(B) − e^ε P(B) ≥ P(B)(e^ℓ − e^ε), and
      P(B) ≤ e^−ℓ δ(ε)/(1 − e^{ε−ℓ}).

    |log P/Q| ≥ ℓ on A ∪ B only, so its probability is at most (1 + e^−ℓ) δ(ε)/(1 − e^{ε−ℓ}), for every ε. The factor
    1 + e^−ℓ is necessary: randomised response with ε₀ always has a loss of ε₀, and with
    δ(ε) = (e^ε₀ − e^ε)/(1 + e^ε₀) the bound is exactly 1 at ℓ = ε₀. The minimum over a grid of ε is returned, which is
    a bound for any grid.

    Args:
        loss: ℓ; a loss above 1000 counts as 1000.
        profile: certified upper bounds on δ, for both orders of the neighbours.
    """
    level = min(loss, _LARGEST)
    if level <= 0:
        return 1.0
    epsilons = sorted({0.0, *(level - gap for gap in _GAPS if gap < level)})
    deltas = map(float, profile(epsilons))
    ratios = (delta / -math.expm1(epsilon - level) for epsilon, delta in zip(epsilons, deltas, strict=True))
    return min(1.0, (1 + math.exp(-level)) * min(ratios) * (1 + _ROUNDING))
