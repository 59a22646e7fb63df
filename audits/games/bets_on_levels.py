"""Bets on every value of one feature to which all columns add their part, such as the number in which a record shows.

Noise that is too small for a record which shows in several columns is seen in all of them: each adds its part to
the privacy loss. One threshold on their number loses most of that: for two columns with noise for ε = 1 each, half of
what a round adds to the logarithm of the gambler's wealth (`benchmarks/most_power.py`). So here each value is bet on by
how much likelier it seems on D′. The bets are those of `dpassay.audits.statistics.score_bets`, which gain nothing on
average if the claim holds, whatever the estimates are.

The estimate is a logistic regression of the data set on the value, by all earlier runs of the pair. If s signs have
noise of one size and are independent, the logarithm of the ratio is linear in their number, with slope 2ε/s about the
middle. Noise of the wrong size is most often wrong by a factor of two: a sensitivity, or a budget that is spent twice.
So the regression starts from twice the claimed ε, and leaves that as runs say so. The prior costs no confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats

from dpassay.audits.statistics.score_bets import Counted, log_gains
from dpassay.base.arrays import Floats

_LARGEST = 64.0  # ε above which a claim allows nearly everything
_TIMES = 2.0  # the claimed ε, before the runs
_WEIGHT_OF_SLOPE = 2.0  # of its prior, in units of its mean at the claimed ε, or at 1 if that is less
_WEIGHT_OF_MIDDLE = 0.1
_STEPS = 50  # of Newton's method, at most
_SHORTEST, _TINY = 2.0**-30, 1e-9
_DIGITS = 9  # of the estimate, which make it the same on all machines
_MOST = 8.0  # of the logarithm of a ratio, before the number of runs allows more


class LevelRatio:
    """The estimated logarithm of how much likelier each level is on D′, from runs on D and on D′.

    Args:
        on_d, on_d_prime: levels in earlier runs; those below 0 count as 0. As many of either are used.
        signs: the largest level.
        limit: ε of the claim.
    """

    def __init__(self, on_d: Sequence[float], on_d_prime: Sequence[float], signs: float, limit: float) -> None:
        size = min(len(on_d), len(on_d_prime))
        self._signs, self._limit = max(signs, 1.0), min(limit, _LARGEST)
        self._usual = max(2 * _TIMES * self._limit / self._signs, 0.01)  # the slope before the runs, per sign
        self._most = max(_MOST, math.log(4 * size + 1))  # no estimate is much surer than the number of runs allows
        self._seen = self._levels(on_d[:size]), self._levels(on_d_prime[:size])
        self._start, self._slope, self._deviation = self._fitted()

    @property
    def log_odds(self) -> float:
        """The logarithm of how much more probable the runs are if levels differ as estimated than if they do not, less
        one for the estimate that was made from them."""
        on_d, on_d_prime = (self._of(side, self._slope) for side in self._seen)
        if not on_d.size:
            return 0.0
        likely = special.log_expit(-on_d).sum() + special.log_expit(on_d_prime).sum()
        return 2 * on_d.size * math.log(2) + float(likely) - 1.0

    def to_json(self) -> dict[str, float]:
        """All that decides the ratio of a level: it is start + slope·(level − signs/2), at most `most` in size."""
        return {"start": self._start, "slope": self._slope, "signs": self._signs, "most": self._most}

    def log_factors(self, new: tuple[float, float], epsilons: Floats, delta: float) -> Floats:
        """The logarithm of the factor by which one round changes the wealth against every ε, shape (G,).

        Args:
            new: levels on D and on D′ in the round, which no estimate depends on.
            epsilons: shape (G,), at least 0.
            delta: δ in [0, 1).
        """
        sides = self._levels([new[0]]), self._levels([new[1]])
        return log_gains(self._expected(self._slope), self._counted(self._slope, sides), epsilons, delta, always=True)

    def mean_growth(self, delta: float) -> float:
        """What a round is expected to add to the logarithm of the wealth against the claim, if levels differ and are as
        frequent as they were: the mean over three slopes, in the place of all that the runs allow."""
        slopes = self._slope + self._deviation * math.sqrt(3) * np.array([-1.0, 0.0, 1.0])
        return float(np.array([1, 4, 1]) @ [self._growth(slope, delta) for slope in slopes.tolist()]) / 6

    def _growth(self, slope: float, delta: float) -> float:
        """The same for one slope."""
        expected = self._expected(slope)
        gains = log_gains(expected, expected, np.array([self._limit]), delta, always=True)
        return 2 * max(0.0, float(gains[0])) / float(expected.on_d.sum() + expected.on_d_prime.sum())

    def _expected(self, slope: float) -> Counted:
        """How often each level is expected on either data set, if the slope is this: caps of bets are chosen by it."""
        levels, weights = self._frequencies()
        likely = special.expit(self._of(levels, slope))
        return self._counted(slope, (levels, levels), (weights * (1 - likely), weights * likely))

    def _levels(self, levels: Sequence[float]) -> Floats:
        return np.clip(np.asarray(levels, dtype=np.float64), 0.0, self._signs)

    def _fitted(self) -> tuple[float, float, float]:
        """The ratio in the middle of all levels, the slope, and its standard deviation: by Newton's method, with steps
        that are halved until the likelihood with the prior does not fall."""
        both = np.concatenate(self._seen) - self._signs / 2
        labels = np.repeat([0.0, 1.0], [side.size for side in self._seen])
        weights = _WEIGHT_OF_MIDDLE, _WEIGHT_OF_SLOPE / max(self._usual, 2 * _TIMES / self._signs) ** 2

        def likelihood(start: float, slope: float) -> float:
            logs = special.log_expit((2 * labels - 1) * (start + slope * both)).sum()
            return float(logs) - (weights[0] * start**2 + weights[1] * (slope - self._usual) ** 2) / 2

        start, slope, reached = 0.0, self._usual, likelihood(0.0, self._usual)
        for _ in range(_STEPS):
            likely = special.expit(start + slope * both)
            weight, rest = likely * (1 - likely), labels - likely
            first = float(rest.sum()) - weights[0] * start
            second = float((rest * both).sum()) - weights[1] * (slope - self._usual)
            one, two = float(weight.sum()) + weights[0], float((weight * both * both).sum()) + weights[1]
            cross = float((weight * both).sum())
            size = one * two - cross * cross
            steps = (two * first - cross * second) / size, (one * second - cross * first) / size
            part = 1.0
            while part > _SHORTEST and likelihood(start + part * steps[0], slope + part * steps[1]) < reached:
                part /= 2
            if part <= _SHORTEST or max(map(abs, steps)) < _TINY:
                break
            start, slope = start + part * steps[0], slope + part * steps[1]
            reached = likelihood(start, slope)
        return round(start, _DIGITS), round(slope, _DIGITS), math.sqrt(one / size)

    def _of(self, levels: Floats, slope: float) -> Floats:
        """The estimate for some levels, if the slope is this."""
        return np.asarray(np.clip(self._start + slope * (levels - self._signs / 2), -self._most, self._most))

    def _frequencies(self) -> tuple[Floats, Floats]:
        """Levels, and how often each was seen; one run on D and one on D′ of independent signs with the usual slope is
        added."""
        every, rate = np.arange(round(self._signs) + 1.0), float(special.expit(self._usual / 2))
        laws = sum(stats.binom.pmf(every, round(self._signs), each) for each in (rate, 1 - rate))
        seen = np.concatenate(self._seen)
        return np.concatenate([every, seen]), np.concatenate([laws, np.ones(seen.size)])

    def _counted(
        self, slope: float, levels: tuple[Floats, Floats], weights: tuple[Floats | None, Floats | None] = (None, None)
    ) -> Counted:
        ends = self._of(np.array([0.0, self._signs]), slope)
        on_d, on_d_prime = (self._of(side, slope) for side in levels)
        return Counted.of(on_d, on_d_prime, float(ends.min()), float(ends.max()), weights)
