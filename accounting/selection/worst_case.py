"""Bounds on adaptively composed selections of one or several ranges, as components for the lattice accountant."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpassay.accounting.conversions import formulas
from dpassay.accounting.lattice import components
from dpassay.accounting.lattice.components import Component
from dpassay.accounting.selection.curve import SelectionCurve, selection_curve
from dpassay.base import validate
from dpassay.base.arrays import Floats

_UNIT = 2.0**-53
_MIN_RANGE, _MAX_RANGE, _MAX_SPREAD = 1e-5, 100.0, 20.0  # of η, and of η√n/2: float64 has no digits for more
_LONGEST = 1024  # the most selections in one recursion; longer sequences are cut into blocks
_WORK = 4e6  # lattice points over all steps
_COARSEST, _FINEST = 8, 1024  # lattice steps per η, powers of 2, so that η = m·h exactly
SMALLEST_DELTA = 1e-15
_FLOOR = 1e-5  # the curve is not computed below this share of the smallest δ


@dataclass(frozen=True, slots=True)
class Selections:
    """How many selections of each range: (η, count), each η once."""

    counts: tuple[tuple[float, int], ...]

    @classmethod
    def of(cls, eta: float | Sequence[float], count: int) -> Selections:
        validate.integer(count=count)
        ranges = (eta,) if isinstance(eta, int | float) else tuple(eta)
        counts: Counter[float] = Counter()
        for value in ranges:
            counts[float(validate.positive(eta=value))] += count
        if not counts:
            raise ValueError("eta must be a range or a list of ranges, not an empty list")
        return cls(tuple(sorted(counts.items())))

    @property
    def pure_epsilon(self) -> float:
        """The pure ε of all selections, Σ nη, rounded up."""
        return formulas.up(sum((Fraction(eta) * count for eta, count in self.counts), start=Fraction(0)))

    @property
    def rho(self) -> float:
        """The ρ of zCDP of all selections, Σ nη²/8, rounded up."""
        return formulas.up(sum((Fraction(eta) ** 2 * count / 8 for eta, count in self.counts), start=Fraction(0)))

    @property
    def single_block(self) -> bool:
        """Whether one recursion covers all selections, without blocks."""
        return len(self.counts) == 1 and self.counts[0][1] <= _LONGEST

    @property
    def refusal(self) -> str | None:
        """Why there is no adaptive bound; None if there is one."""
        spread = math.sqrt(2 * self.rho)
        for eta, _ in self.counts:
            if not _MIN_RANGE <= eta <= _MAX_RANGE:
                return f"adaptive needs eta between {_MIN_RANGE:g} and {_MAX_RANGE:g}, not {eta:g}; use zcdp or pure"
        if spread > _MAX_SPREAD:
            return f"adaptive needs √(Σ eta²)/2 of at most {_MAX_SPREAD:g}, not {spread:.4g}; use zcdp or pure"
        return None

    def simple_delta(self, distances: Floats) -> Floats:
        """The smaller of the δ of zCDP and of pure DP, for ε ≥ 0."""
        return np.minimum(pure_delta(self.pure_epsilon, distances), zcdp_delta(self.rho, distances))

    def curve(self, smallest_delta: float = SMALLEST_DELTA) -> SelectionCurve:
        """The curve of the recursion, for selections that are a single block with an adaptive bound."""
        if reason := self.refusal:
            raise ValueError(reason)
        ((eta, count),) = self.counts
        floor = smallest_delta * _FLOOR
        reach = min(formulas.epsilon_from_zcdp(self.rho, floor), self.pure_epsilon) / eta
        wanted = 2.0 ** math.floor(math.log2(_WORK / ((count + 1) * (0.7 * reach + 2))))
        return selection_curve(eta, count, int(min(max(wanted, _COARSEST), _FINEST)), floor)

    def components(self, smallest_delta: float = SMALLEST_DELTA, block: int = _LONGEST) -> list[tuple[Component, int]]:
        """Blocks of at most `block` selections of one range, each with its count; their product is the bound."""
        if reason := self.refusal:
            raise ValueError(reason)
        parts: list[tuple[Component, int]] = []
        for eta, count in self.counts:
            if count:
                fewest = -(-count // block)  # of up to twice as many blocks, a number that wastes the fewest selections
                blocks = min(range(fewest, 2 * fewest), key=lambda some: -count % some)
                each = Selections(((eta, -(-count // blocks)),))
                parts.append((each._profile(smallest_delta), blocks))
        return parts

    def _profile(self, smallest_delta: float) -> Component:
        result, floor = self.curve(smallest_delta), smallest_delta * _FLOOR
        high = min(formulas.epsilon_from_zcdp(self.rho, floor), self.pure_epsilon)

        def upper(epsilons: Floats) -> Floats:
            return extended_to_negative(
                lambda distances: np.minimum(self.simple_delta(distances), result.upper_at(distances)), epsilons
            )

        return components.profile(upper, low=-high, high=high, label=f"selections({self.counts!r}, {result.floor!r})")


def extended_to_negative(deltas: Callable[[Floats], Floats], epsilons: Floats) -> Floats:
    """δ at ε of either sign from upper bounds at |ε|, for a curve that is the same in both directions.

    δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε).
    """
    distances = np.abs(epsilons)
    there = deltas(distances)
    reflected = (np.exp(-distances) * there - np.expm1(-distances)) * (1 + 16 * _UNIT)
    return np.minimum(np.where(epsilons < 0, reflected, there), 1.0)


def pure_delta(total: float, epsilons: Floats) -> Floats:
    """δ(ε) of pure `total`-DP, ε ≥ 0.

    Source: Kairouz, Oh and Viswanath (2015).
    """
    exact = np.abs(np.expm1(np.minimum(epsilons - total, 0.0))) / (1 + math.exp(-total))
    return np.asarray(exact * (1 + 2.0**-49))


def zcdp_delta(rho: float, epsilons: Floats) -> Floats:
    """δ(ε) of ρ-zCDP, ε ≥ 0, at the order (ε + ρ)/(2ρ), which is near the best; see `formulas.log_delta_from_rdp`."""
    if rho == 0:
        return np.zeros(epsilons.shape)
    order = 1 + np.maximum((epsilons - rho) / (2 * rho), 2.0**-20)
    excess = order - 1
    terms = [excess * rho * order, -excess * epsilons, -excess * np.log1p(1 / excess), -np.log(order)]
    error = 32 * _UNIT * np.sum(np.abs(terms), axis=0)
    return np.asarray(np.exp(np.minimum(np.sum(terms, axis=0) + error, 0.0)) * (1 + 8 * _UNIT))
