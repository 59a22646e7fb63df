"""How well scores separate two groups: area under the curve, true positives at low false-positive rates. No ε follows.

The rates are descriptive. Their intervals treat records as independent draws, which records of one run are not quite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.bounds import Interval
from dpassay.base import validate
from dpassay.base.arrays import Floats


@dataclass(frozen=True, slots=True)
class Area:
    """The area under the receiver operating characteristic.

    Attributes:
        value: P[a member scores higher than another record] + ½·P[they tie], over all pairs.
        interval: has at least the stated confidence for any distribution of scores and any number of records. Each
            end is √(ln(2/β)/(2·min(n₁, n₀))) away (Hoeffding 1963, section 5, for two-sample statistics).
    """

    value: float
    interval: Interval


def area_under_curve(inside: ArrayLike, outside: ArrayLike, *, confidence: float) -> Area:
    """The area under the curve of scores that are larger for "in", of at least one member and one non-member.

    Raises:
        ValueError: if a side has no score, or a score is NaN.
    """
    validate.open_probability(confidence=confidence)
    members, others = _sorted(inside), _sorted(outside)
    below = np.searchsorted(others, members, side="left").sum(dtype=np.int64)
    at_most = np.searchsorted(others, members, side="right").sum(dtype=np.int64)
    value = float(below + at_most) / (2 * len(members) * len(others))
    margin = math.sqrt(math.log(2 / (1 - confidence)) / (2 * min(len(members), len(others))))
    return Area(value, Interval(max(0.0, value - margin), min(1.0, value + margin)))


def positives_at(inside: ArrayLike, outside: ArrayLike, *, false_positive_rate: float) -> tuple[int, int]:
    """The true and false positives at the lowest threshold that respects a false-positive rate in [0, 1).

    The threshold is the score of a non-member such that at most ⌊rate·n₀⌋ non-members score higher: none if there are
    fewer than 1/rate.
    """
    validate.probability_below_one(false_positive_rate=false_positive_rate)
    members, others = _sorted(inside), _sorted(outside)
    allowed = math.floor(false_positive_rate * len(others) + 1e-9)  # against rounding: .1·10 must give 1
    threshold = others[-1 - allowed]
    counts = [len(side) - int(np.searchsorted(side, threshold, side="right")) for side in (members, others)]
    return counts[0], counts[1]


def _sorted(scores: ArrayLike) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not values.size or np.isnan(values).any():
        raise ValueError("members and non-members each need at least one score, and no score may be NaN")
    return np.sort(values)
