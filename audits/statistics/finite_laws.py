"""The exact ε of two finite distributions: what the best test shows in the limit of infinitely many runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor
from dpassay.base import validate

Law: TypeAlias = Mapping[Any, Fraction | int | float]
"""Outcome → weight of at least 0; probabilities are the weights divided by their sum."""

_UNIT = 2.0**-53


def exact_epsilon(
    law_d: Law,
    law_d_prime: Law,
    delta: Fraction | float = 0.0,
    *,
    logarithms: bool = False,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """The smallest ε ≥ 0 at which two distributions P and Q are (ε, δ)-indistinguishable, in both directions.

    H(γ) = Σ max(0, P(x) − γQ(x)) decreases in γ = e^ε and is linear between the ratios P(x)/Q(x). If the outcomes with
    a ratio above γ have masses p and q, H(γ) = p − γq, so δ is reached at γ = (p − δ)/q: the first such γ that is not
    below the next ratio. With whole numbers and fractions all of this is exact; only the final logarithm is rounded,
    and the interval contains its exact value.

    Args:
        law_d: distribution of the output on D; weights are whole numbers, fractions or floats.
        law_d_prime: distribution on its neighbour D′.
        delta: δ in [0, 1); a float stands for its exact rational value.
        logarithms: whether the weights are natural logarithms (floats; −inf for 0).
        adjacency, unit: of D and D′.

    Returns:
        A lower bound on the ε of any mechanism with these distributions on neighbours; inf if outcomes of more mass
        than δ occur on one side only. If every weight is a whole number or a fraction, the bound is certified and its
        interval contains the exact ε of the pair. Floats may be rounded, so from them it is an estimate.

    Raises:
        ValueError: if a distribution has no mass, a weight is negative or not a number, or δ is outside [0, 1).

    Source: Barthe and Olmedo, "Beyond Differential Privacy: Composition Theorems and Relational Logic for f-divergences
    between Probabilistic Programs" (2013), for (ε, δ)-DP as a bound on this divergence.
    """
    validate.probability_below_one(delta=float(delta))
    if Fraction(delta) >= 1:
        raise ValueError(f"delta must be below 1, not {delta!r}")
    rational = not logarithms and all(
        isinstance(weight, int | Fraction) for law in (law_d, law_d_prime) for weight in law.values()
    )
    p, q = _normalised(law_d, "law_d", logarithms), _normalised(law_d_prime, "law_d_prime", logarithms)
    outcomes = p.keys() | q.keys()
    pairs = [(p.get(outcome, Fraction(0)), q.get(outcome, Fraction(0))) for outcome in outcomes]
    growth = max(_growth(pairs, Fraction(delta)), _growth([(b, a) for a, b in pairs], Fraction(delta)))
    interval = _logarithm(growth)
    return Bound(
        direction=Direction.LOWER,
        value=interval.lower,
        method="exact_laws",
        rigor=Rigor.CERTIFIED if rational else Rigor.ESTIMATE,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=float(delta) or None,
        interval=interval if rational else None,
        assumptions=("these are the distributions of the output on two neighbours",),
    )


def _growth(pairs: list[tuple[Fraction, Fraction]], delta: Fraction) -> Fraction | float:
    """The smallest γ ≥ 1 with Σ max(0, P − γQ) ≤ δ; inf if there is none."""
    alone = sum((p for p, q in pairs if q == 0), Fraction(0))
    if alone > delta:
        return math.inf
    p_mass, q_mass, best = alone, Fraction(0), Fraction(1)
    ratios = sorted(((p / q, p, q) for p, q in pairs if q > 0 and p > q), reverse=True)
    for index, (_, p, q) in enumerate(ratios):
        p_mass, q_mass = p_mass + p, q_mass + q
        growth = (p_mass - delta) / q_mass
        following = ratios[index + 1][0] if index + 1 < len(ratios) else Fraction(0)
        if growth >= following:
            return max(best, growth)
    return best


def _normalised(law: Law, name: str, logarithms: bool) -> dict[Any, Fraction]:
    """Probabilities that sum to 1 exactly."""
    weights = {}
    for outcome, weight in law.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float | Fraction) or weight != weight:
            raise ValueError(f"{name}: the weight of an outcome must be a number, not {weight!r}")
        if weight == math.inf or (weight < 0 and not logarithms):
            raise ValueError(f"{name}: the weight of an outcome must be finite and at least 0, not {weight!r}")
        weights[outcome] = _exponential(float(weight)) if logarithms else Fraction(weight)
    total = sum(weights.values(), Fraction(0))
    if total <= 0:
        raise ValueError(f"{name}: at least one outcome must have a weight above 0")
    return {outcome: weight / total for outcome, weight in weights.items()}


def _exponential(logarithm: float) -> Fraction:
    """e to this power, also outside of the range of floats."""
    if logarithm == -math.inf:
        return Fraction(0)
    shift = round(logarithm / math.log(2))
    return Fraction(math.exp(logarithm - shift * math.log(2))) * Fraction(2) ** shift


def _logarithm(growth: Fraction | float) -> Interval:
    """An interval that contains log γ, for γ ≥ 1.

    γ = 2^k·m with m in (½, 2). The float nearest to m has a relative error of at most 2⁻⁵³, `math.log` an error of at
    most 4 units in the last place, and k·log 2 one such unit for log 2 and one for the product.
    """
    if isinstance(growth, float):
        return Interval(growth, growth)
    if growth == 1:
        return Interval(0.0, 0.0)
    shift = growth.numerator.bit_length() - growth.denominator.bit_length()
    mantissa = float(growth / Fraction(2) ** shift)
    logarithm, far = math.log(mantissa), shift * math.log(2)
    error = 2 * _UNIT + 8 * _UNIT * abs(logarithm) + 4 * _UNIT * abs(far) + 2 * _UNIT * abs(logarithm + far)
    lower = math.nextafter(logarithm + far - error, -math.inf)
    return Interval(max(lower, 0.0), math.nextafter(logarithm + far + error, math.inf))
