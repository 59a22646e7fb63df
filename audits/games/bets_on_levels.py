"""Bets on every value of one feature, such as the number of columns in which a record shows.

Noise that is too small for a record which shows in several columns is seen in all of them: each adds its part to
the privacy loss. One threshold on their number loses most of that: for two columns with noise for ε = 1 each, half of
what a round adds to the logarithm of the gambler's wealth (`benchmarks/most_power.py`). So here each value is bet on by
how much likelier it seems on D′. That is estimated from all earlier runs of the pair by logistic regression, which is
right if all columns have losses of one size (`dpassay.attacks.black_box.likelihood_ratios`). The bets are those of
`dpassay.audits.statistics.score_bets`, which gain nothing on average if the claim holds, whatever the estimates are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpassay.attacks.black_box.likelihood_ratios import LikelihoodRatio, logistic_likelihood_ratio
from dpassay.audits.statistics.score_bets import Counted, log_gains
from dpassay.base.arrays import Floats

LARGEST = 64.0
"""ε above which a claim allows nearly everything."""
LEAST_RUNS = 4
"""Earlier runs on each data set without which there is no estimate."""


def log_factors(
    seen: tuple[Sequence[float], Sequence[float]], new: tuple[float, float], epsilons: Floats, delta: float
) -> Floats:
    """The logarithm of the factor by which one round changes the wealth against every ε, shape (G,).

    Args:
        seen: values on D and on D′ in earlier runs, at least `LEAST_RUNS` of each.
        new: values on D and on D′ in the round, which no estimate depends on.
        epsilons: shape (G,), at least 0.
        delta: δ in [0, 1).
    """
    earlier = _as_many(seen)
    ratio = _fitted(earlier)
    on_d, on_d_prime = (np.array([value]) for value in new)
    return log_gains(_counted(ratio, *earlier), _counted(ratio, on_d, on_d_prime), epsilons, delta)


def mean_growth(seen: tuple[Sequence[float], Sequence[float]], limit: float, delta: float) -> float:
    """What a round is expected to add to the logarithm of the wealth against a claimed ε: what earlier runs would have
    added, less one in all, since the estimate was made from them."""
    earlier = _as_many(seen)
    counted = _counted(_fitted(earlier), *earlier)
    return (float(log_gains(counted, counted, np.array([min(limit, LARGEST)]), delta)[0]) - 1.0) / len(earlier[0])


def _as_many(seen: tuple[Sequence[float], Sequence[float]]) -> tuple[Floats, Floats]:
    """As many values of either side; a failed run, which has none, is below all others."""
    size = min(map(len, seen))
    on_d, on_d_prime = (np.maximum(np.asarray(side[:size], dtype=np.float64), -1.0) for side in seen)
    return on_d, on_d_prime


def _fitted(seen: tuple[Floats, Floats]) -> LikelihoodRatio:
    return logistic_likelihood_ratio(*seen, float)


def _counted(ratio: LikelihoodRatio, on_d: Floats, on_d_prime: Floats) -> Counted:
    first, second = (ratio.of(np.maximum(side, -1.0)) for side in (on_d, on_d_prime))
    return Counted.of(first, second, ratio.least, ratio.most)
