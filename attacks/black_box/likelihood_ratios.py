"""Log-likelihood ratios of outputs, D′ over D, estimated from as many outputs of either data set.

A score only orders outputs. A bet needs to know by how much likelier an output is on D′, so scores are calibrated: by
logistic regression, which is right for a shift of Gaussian noise and learns fast, and by isotonic regression, which is
right in the end for every score with a monotone ratio, such as a number with log-concave noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special

from dpassay.attacks.black_box.distinguishing import Outputs, OutputScore, fitted_scores, given_score
from dpassay.base.arrays import Floats

_LARGEST = 1e300  # in place of infinite scores
_STEPS = 25  # of Newton's method
_RIDGE = 1.0  # of the slope in units of the scores' standard deviation, so that separated scores have a finite slope
_SMOOTHING = 0.5  # added to the counts of either side


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """A function of n outputs, in the form that `plain` returns, to estimated log-likelihood ratios of shape (n,).

    Attributes:
        name: for reports.
        of: the function.
        least, most: between which all its values are.
    """

    name: str
    of: Callable[[Outputs], Floats]
    least: float
    most: float


def fitted_likelihood_ratios(
    on_d: Outputs, on_d_prime: Outputs, score: Callable[[Any], float] | None = None
) -> list[LikelihoodRatio]:
    """Estimates from at least four outputs of each data set, as many of both, in the form that `plain` returns.

    Args:
        on_d, on_d_prime: the outputs.
        score: larger for D′, calibrated on all outputs. By default every second output is for fitting scores
            (`fitted_scores`), and the others are for calibration.

    Raises:
        ValueError: if there are too few outputs, or no score can be fitted; or if a given score is NaN.
    """
    if len(on_d) != len(on_d_prime) or len(on_d) < 4:
        raise ValueError("estimating likelihood ratios needs at least four outputs of each data set, as many of both")
    if score is not None:
        scores = [given_score(score)]
    else:
        scores = fitted_scores(on_d[::2], on_d_prime[::2])
        size = len(on_d[1::2])
        on_d, on_d_prime = on_d[1::2][:size], on_d_prime[1::2][:size]
    results = []
    for item in scores:
        values = [np.clip(item.of(side), -_LARGEST, _LARGEST) for side in (on_d, on_d_prime)]
        results += [_logistic(item, *values), _isotonic(item, *values)]
    return results


def _logistic(score: OutputScore, on_d: Floats, on_d_prime: Floats) -> LikelihoodRatio:
    """A linear function of the score, within the range of scores seen, by logistic regression with a ridge."""
    both = np.concatenate([on_d, on_d_prime])
    low, high = float(both.min()), float(both.max())
    size = max(abs(low), abs(high), 1e-300)
    middle, spread = float((both / size).mean()), float((both / size).std()) or 1.0

    def standard(scores: Floats) -> Floats:
        return np.asarray((np.clip(scores, low, high) / size - middle) / spread)

    x, labels = standard(both), np.repeat([0.0, 1.0], [len(on_d), len(on_d_prime)])
    slope = start = 0.0
    for _ in range(_STEPS):
        likely = special.expit(start + slope * x)
        weight = likely * (1 - likely)
        gradient = np.array([(labels - likely).sum(), ((labels - likely) * x).sum() - _RIDGE * slope])
        cross = float((weight * x).sum())
        hessian = np.array([[weight.sum() + 1e-9, cross], [cross, (weight * x * x).sum() + _RIDGE]])
        step = np.linalg.solve(hessian, gradient)
        start, slope = start + float(step[0]), slope + float(step[1])
        if np.abs(step).max() < 1e-6:
            break
    if not math.isfinite(start) or not math.isfinite(slope):
        start = slope = 0.0
    most = math.log(2 * len(both) + 1)  # no estimate is surer than the number of outputs allows
    ends = np.clip(start + slope * standard(np.array([low, high])), -most, most)
    return LikelihoodRatio(
        score.name,
        lambda outputs: np.clip(start + slope * standard(score.of(outputs)), -most, most),
        float(ends.min()),
        float(ends.max()),
    )


def _isotonic(score: OutputScore, on_d: Floats, on_d_prime: Floats) -> LikelihoodRatio:
    """A step function that grows with the score, by isotonic regression with smoothed counts."""
    both, labels = np.concatenate([on_d, on_d_prime]), np.repeat([0.0, 1.0], [len(on_d), len(on_d_prime)])
    values, index = np.unique(both, return_inverse=True)
    counted = np.bincount(index).astype(np.float64)
    inside = np.bincount(index, labels)
    first = optimize.isotonic_regression(inside / counted, weights=counted).blocks[:-1]
    inside, counted = np.add.reduceat(inside, first), np.add.reduceat(counted, first)
    ratios = np.log(inside + _SMOOTHING) - np.log(counted - inside + _SMOOTHING)
    ends = values[first[1:] - 1] / 2 + values[first[1:]] / 2
    return LikelihoodRatio(
        f"{score.name} (by steps)",
        lambda outputs: ratios[np.searchsorted(ends, np.clip(score.of(outputs), -_LARGEST, _LARGEST), side="right")],
        float(ratios.min()),
        float(ratios.max()),
    )
