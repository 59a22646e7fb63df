"""How well scores tell two groups apart: area under the curve, and true positives at few false ones. No ε follows.

Rates describe. Their intervals take records as independent draws, which those of one run are not quite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cupel.accounting import validate
from cupel.accounting.bounds import Interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Area:
    """The area under the receiver operating characteristic.

    Attributes:
        value: P[a member scores higher than another record] + ½·P[they tie], over all pairs.
        interval: with at least the stated confidence, for any law of scores and any number of records: each end is
            √(ln(2/β)/(2·min(n₁, n₀))) away (Hoeffding 1963, section 5, for two-sample statistics).
    """

    value: float
    interval: Interval


def area_under_curve(inside: ArrayLike, outside: ArrayLike, *, confidence: float) -> Area:
    """The area under the curve of scores that are larger for "in".

    Args:
        inside: shape (n₁,), n₁ ≥ 1, scores of members.
        outside: shape (n₀,), n₀ ≥ 1, scores of the others.
        confidence: 1 − β, in (0, 1).

    Raises:
        ValueError: for no scores, or NaN.
    """
    validate.open_probability(confidence=confidence)
    members, others = _sorted(inside), _sorted(outside)
    below = np.searchsorted(others, members, side="left").sum(dtype=np.int64)
    at_most = np.searchsorted(others, members, side="right").sum(dtype=np.int64)
    value = float(below + at_most) / (2 * len(members) * len(others))
    margin = math.sqrt(math.log(2 / (1 - confidence)) / (2 * min(len(members), len(others))))
    return Area(value, Interval(max(0.0, value - margin), min(1.0, value + margin)))


def positives_at(inside: ArrayLike, outside: ArrayLike, *, false_positive_rate: float) -> tuple[int, int]:
    """How many members, and how many others, score above the lowest threshold that respects a false-positive rate.

    The threshold is the score of an outside record such that at most ⌊rate·n₀⌋ of them score higher: 0 of them where
    there are fewer than 1/rate.

    Args:
        inside, outside: as for `area_under_curve`.
        false_positive_rate: in [0, 1).

    Returns:
        True and false positives.
    """
    validate.probability_below_one(false_positive_rate=false_positive_rate)
    members, others = _sorted(inside), _sorted(outside)
    allowed = math.floor(false_positive_rate * len(others) + 1e-9)  # .1·10 is 1, whatever the floats say
    threshold = others[-1 - allowed]
    counts = [len(side) - int(np.searchsorted(side, threshold, side="right")) for side in (members, others)]
    return counts[0], counts[1]


def _sorted(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not values.size or np.isnan(values).any():
        raise ValueError("members and others both need at least one score, and no NaN")
    return np.sort(values)
