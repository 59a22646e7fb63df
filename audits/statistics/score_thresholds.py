"""ε from two samples of scores by a threshold test, corrected for the choice of the threshold.

The best threshold on the same scores that are tested gives no valid bound. Four choices do:

- `FixedThreshold`: chosen before the scores were seen.
- `Split`: chosen on a part of the scores, tested on the rest.
- `Grid`: the best of k pre-registered thresholds, each at 1 − β/k (Bonferroni).
- `Band`: the best of all thresholds, by a band around both distribution functions (Dvoretzky, Kiefer, Wolfowitz).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from dpassay.audits.statistics.binomial import epsilons_clopper_pearson
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.base.number_format import format_number


@dataclass(frozen=True, slots=True)
class FixedThreshold:
    """A score of at least `value` is guessed "in"; the value was fixed before the scores were seen."""

    value: float

    def __post_init__(self) -> None:
        validate.finite(value=self.value)


@dataclass(frozen=True, slots=True)
class Split:
    """The best threshold on a random part of the scores, tested on the rest.

    Attributes:
        fraction: of each sample on which the threshold is chosen, in (0, 1).
        seed: of the split, a public choice.
    """

    fraction: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        validate.open_probability(fraction=self.fraction)
        validate.integer(seed=self.seed)


@dataclass(frozen=True, slots=True)
class Grid:
    """The best of these thresholds, which were fixed before the scores were seen."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a grid needs at least one threshold")
        for value in self.values:
            validate.finite(value=value)


@dataclass(frozen=True, slots=True)
class Band:
    """The best of all thresholds, with a simultaneous band."""


Threshold: TypeAlias = FixedThreshold | Split | Grid | Band


def epsilon_from_scores(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    delta: float,
    confidence: float,
    threshold: Threshold | None = None,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on ε from scores of independent runs with and without a unit.

    Args:
        in_scores: shape (n₁,), one score for each run on D′; larger for "in".
        out_scores: shape (n₀,), one score for each run on D.
        delta: δ in [0, 1).
        confidence: 1 − β.
        threshold: how the test is chosen; by default `Split`.
        adjacency, unit: of D and D′.

    Returns:
        A finite-sample lower bound. Its ceiling is the bound for perfectly separated scores.

    Raises:
        ValueError: for scores that are no numbers, or too few to be split.

    Source: Massart 1990 for the constant of the band: each side exceeds √(ln(2/β)/(2n)) with probability β/2 at most.
    """
    validate.open_probability(confidence=confidence)
    validate.probability_below_one(delta=delta)
    rule = Split() if threshold is None else threshold
    inside, outside = _sample(in_scores, "in_scores"), _sample(out_scores, "out_scores")
    match rule:
        case FixedThreshold(value):
            result = _at(inside, outside, np.array([value]), delta, confidence)
            said = f"the threshold {format_number(value)} was fixed before the scores were seen"
        case Grid(values):
            each = 1 - (1 - confidence) / len(values)
            result = _at(inside, outside, np.array(values), delta, each)
            said = (
                f"{len(values)} thresholds were fixed before the scores were seen, each tested at 1 − β/{len(values)}"
            )
        case Split():
            result = _split(inside, outside, rule, delta, confidence)
            said = f"the threshold was chosen on {format_number(rule.fraction)} of the scores and tested on the others"
        case Band():
            result = _band(inside, outside, delta, confidence)
            said = "all thresholds are covered by a band around both distribution functions"
        case _:
            raise ValueError(f"threshold must be a FixedThreshold, Split, Grid or Band, not {rule!r}")
    return Bound(
        direction=Direction.LOWER,
        value=result[0],
        method="scores",
        rigor=Rigor.FINITE_SAMPLE,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta or None,
        confidence=confidence,
        ceiling=result[1],
        null_family=ANY_MECHANISM,
        assumptions=("each run of the mechanism is independent of the others", said),
    )


ValueAndCeiling: TypeAlias = tuple[float, float]
"""The value of a bound, and the ceiling of the same test."""


def _at(inside: Floats, outside: Floats, thresholds: Floats, delta: float, confidence: float) -> ValueAndCeiling:
    """The largest bound of these thresholds, each at this confidence."""
    tp, fp = _at_least(inside, thresholds), _at_least(outside, thresholds)
    counts = (tp, inside.size - tp, fp, outside.size - fp)
    values = epsilons_clopper_pearson(*counts, delta=delta, confidence=confidence)
    ceiling = epsilons_clopper_pearson(inside.size, 0, 0, outside.size, delta=delta, confidence=confidence)
    return float(values.max()), float(ceiling)


def _split(inside: Floats, outside: Floats, rule: Split, delta: float, confidence: float) -> ValueAndCeiling:
    generator = np.random.default_rng(rule.seed)
    parts = []
    for sample, name in ((inside, "in_scores"), (outside, "out_scores")):
        chosen = round(sample.size * rule.fraction)
        if not 0 < chosen < sample.size:
            raise ValueError(f"{name} has {sample.size} scores, too few to split at a fraction of {rule.fraction:g}")
        mixed = generator.permutation(sample)
        parts.append((mixed[:chosen], mixed[chosen:]))
    (tried_in, tested_in), (tried_out, tested_out) = parts
    candidates = np.unique(np.concatenate([tried_in, tried_out]))
    tp, fp = _at_least(tried_in, candidates), _at_least(tried_out, candidates)
    counts = (tp, tried_in.size - tp, fp, tried_out.size - fp)
    # Correct for the number of thresholds, so that a tail of few scores is not chosen by chance.
    each = 1 - (1 - confidence) / candidates.size
    best = candidates[np.argmax(epsilons_clopper_pearson(*counts, delta=delta, confidence=each))]
    return _at(tested_in, tested_out, np.array([best]), delta, confidence)


def _band(inside: Floats, outside: Floats, delta: float, confidence: float) -> ValueAndCeiling:
    """The best bound of all thresholds.

    P[TPR ≥ TPR̂ − m₁ and FPR ≤ FPR̂ + m₀ at every threshold] ≥ 1 − β, so both directions of every test hold jointly.
    """
    candidates = np.unique(np.concatenate([inside, outside]))
    margins = [math.sqrt(math.log(2 / (1 - confidence)) / (2 * sample.size)) for sample in (inside, outside)]
    hit = np.maximum(_at_least(inside, candidates) / inside.size - margins[0], 0.0)
    false = np.minimum(_at_least(outside, candidates) / outside.size + margins[1], 1.0)
    ceiling = _epsilons(np.array(max(1 - margins[0], 0.0)), np.array(min(margins[1], 1.0)), delta)
    return float(_epsilons(hit, false, delta).max()), float(ceiling)


def _epsilons(hit: Floats, false: Floats, delta: float) -> Floats:
    """The ε shown by a true-positive rate of at least `hit` and a false-positive rate of at most `false`."""
    with np.errstate(divide="ignore"):
        first = np.log(np.maximum(hit - delta, 0.0)) - np.log(false)
        second = np.log(np.maximum(1 - false - delta, 0.0)) - np.log1p(-hit)
    return np.asarray(np.maximum(0.0, np.maximum(first, second)))


def _at_least(sample: Floats, thresholds: Floats) -> Integers:
    return np.asarray(sample.size - np.searchsorted(np.sort(sample), thresholds, side="left"), dtype=np.int64)


def _sample(scores: ArrayLike, name: str) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{name} must be a 1-D array of at least one score, not of shape {values.shape}")
    if missing := int(np.isnan(values).sum()):
        raise ValueError(f"{name} must not contain NaN, but {missing} of {values.size} scores are NaN")
    return values
