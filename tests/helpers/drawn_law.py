"""Whether drawn noise and samples have a law, each check with its false alarm.

A check of n normal draws sees a scale that is 5 % off as √(2n)/20 standard deviations of their sum of squares: with
20,000 draws as 10, where the alarm begins at 5.3, so it misses it less than once in 10⁵ runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

ALARM = 1e-7
"""The largest probability with which each check fails for noise that has the law."""


def check_normal(noise: ArrayLike, scale: float) -> None:
    """Independent normal noise of this standard deviation: sum of squares, shape, and correlation of neighbours."""
    drawn = np.ravel(np.asarray(noise, dtype=np.float64)) / scale
    low, high = stats.chi2.ppf(np.array([ALARM / 2, 1 - ALARM / 2]), drawn.size)
    assert low < np.square(drawn).sum() < high, f"the noise is {drawn.std():.4f} of what is charged"
    assert stats.kstest(drawn, "norm").pvalue > ALARM
    for away in (1, drawn.size // 2):
        assert stats.pearsonr(drawn[:-away], drawn[away:]).pvalue > ALARM


def check_discrete_laplace(noise: ArrayLike, rate: float) -> None:
    """P(k) ∝ exp(−rate·|k|), by chi-square; values that are expected less than 20 times are pooled on each side.

    Of n draws, 5 % off in the rate are √n/20 standard deviations of the mean |k|.
    """
    drawn = np.ravel(np.asarray(noise, dtype=np.int64))
    mass = np.tanh(rate / 2) * np.exp(-rate * np.arange(drawn.size))
    edge = int(np.count_nonzero(drawn.size * mass >= 20))
    tail = float(np.tanh(rate / 2) * np.exp(-rate * edge) / -np.expm1(-rate))
    law = np.concatenate([[tail], mass[1:edge][::-1], mass[:edge], [tail]])
    counts = np.bincount(np.clip(drawn, -edge, edge) + edge, minlength=2 * edge + 1)
    check_counts(counts, law)
    mean, square = 1 / np.sinh(rate), 1 / (2 * np.sinh(rate / 2) ** 2)  # of |k|
    spread = np.sqrt((square - mean**2) / drawn.size)
    result = np.abs(drawn).mean()
    assert abs(result - mean) < stats.norm.isf(ALARM / 2) * spread, (
        f"the noise is {result / mean:.4f} of what is charged"
    )


def check_counts(counts: ArrayLike, law: ArrayLike) -> None:
    """How often each outcome was drawn, by chi-square."""
    seen, expected = np.asarray(counts, dtype=np.float64), np.asarray(law, dtype=np.float64)
    assert stats.chisquare(seen, expected / expected.sum() * seen.sum()).pvalue > ALARM, seen / seen.sum()


def check_share(drawn: NDArray[np.bool_], chance: float) -> None:
    """Independent draws with a probability: their number is binomial."""
    result = stats.binomtest(int(drawn.sum()), drawn.size, chance)
    assert result.pvalue > ALARM, f"{result.statistic:.4f} were drawn, {chance:.4f} is charged"
