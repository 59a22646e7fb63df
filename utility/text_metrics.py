"""Diversity and length of texts, synthetic beside real. Every number is computed from private data, and is private.

Source: distinct-n is Li et al., "A diversity-promoting objective function for neural conversation models" (2016);
rarefaction is Hurlbert, "The nonconcept of species diversity" (1971), equation 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln
from scipy.stats import ks_2samp, wasserstein_distance

from dpassay.base import validate
from dpassay.data.word_runs import Words, occurrences
from dpassay.utility.result import Result, Sides

LARGEST_N = 4
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class DistinctN(Result):
    """Distinct-n: the share of different ones among all runs of n words.

    Attributes:
        n: words in a run.
        runs: the number of runs on each side.
        same_size: the smaller of the two numbers.
        distinct: among all runs of a side, in [0, 1]; None where a side has no run.
        distinct_at_same_size: expected among `same_size` runs of a side drawn without replacement, in [0, 1]; None
            where a side has no run.
    """

    n: int
    runs: Sides[int]
    same_size: int
    distinct: Sides[float | None]
    distinct_at_same_size: Sides[float | None]


@dataclass(frozen=True)
class LengthSummary(Result):
    """The mean length of the texts of one side, and the quantile for each probability in `QUANTILES`, in the unit of
    the lengths."""

    mean: float
    quantiles: Mapping[float, float]


@dataclass(frozen=True)
class LengthComparison(Result):
    """The lengths of synthetic and of real texts: of each side, and their Wasserstein-1 distance, ≥ 0, in the unit of
    the lengths, and Kolmogorov–Smirnov distance, in [0, 1]."""

    synthetic: LengthSummary
    real: LengthSummary
    wasserstein_1: float
    kolmogorov_smirnov: float


def expected_distinct(occurrences: ArrayLike, draws: int) -> float:
    """How many different kinds are expected among m `draws`, from 0 to N, of things drawn without replacement;
    `occurrences` says how many kinds have c things, for c = 0, 1, 2, ….

    E = Σ_i 1 − C(N − c_i, m) / C(N, m) for m draws from N = Σ c_i things of which c_i are of kind i. With m = N it is
    the number of kinds. Numbers of different kinds grow slower than samples, so collections of different sizes are
    compared at the same m.

    Raises:
        ValueError: for m out of range.
    """
    kinds = np.asarray(occurrences, dtype=np.int64)
    c = np.flatnonzero(kinds)
    total = int(c @ kinds[c])
    if validate.integer(draws=draws) > total:
        raise ValueError(f"draws must be at most the number of things ({total}), not {draws}")
    left = total - c
    possible = left >= draws  # else some of the kind must be among the draws
    rest = np.where(possible, left, draws)
    log_none = gammaln(rest + 1) - gammaln(rest - draws + 1) - gammaln(total + 1) + gammaln(total - draws + 1)
    seen = np.where(possible, -np.expm1(np.minimum(log_none, 0)), 1.0)
    return float(kinds[c] @ seen)


def diversity(synthetic: Words, real: Words) -> tuple[DistinctN, ...]:
    """Distinct-n for n = 1 to 4, of all texts of a side and at the same number of runs."""
    return tuple(_distinct_n(n, synthetic, real) for n in range(1, LARGEST_N + 1))


def _distinct_n(n: int, synthetic: Words, real: Words) -> DistinctN:
    kinds = occurrences(synthetic.runs(n)), occurrences(real.runs(n))
    totals = [int(np.arange(len(of)) @ of) for of in kinds]
    common = min(totals)
    distinct = [int(of.sum()) / total if total else None for of, total in zip(kinds, totals, strict=True)]
    expected = [expected_distinct(of, common) / common if common else None for of in kinds]
    return DistinctN(n, Sides(*totals), common, Sides(*distinct), Sides(*expected))


def compare_lengths(synthetic: Sequence[int], real: Sequence[int]) -> LengthComparison:
    """Quantiles of the lengths of texts, and two distances of their distributions.

    Args:
        synthetic, real: one length a text, at least one.

    Raises:
        ValueError: if a side is empty.
    """
    sides = {"synthetic": np.asarray(synthetic, dtype=np.float64), "real": np.asarray(real, dtype=np.float64)}
    for side, lengths in sides.items():
        if not lengths.size:
            raise ValueError(f"lengths are compared of at least one text; there is no {side} one")
    return LengthComparison(
        **{
            side: LengthSummary(float(lengths.mean()), {q: float(np.quantile(lengths, q)) for q in QUANTILES})
            for side, lengths in sides.items()
        },
        wasserstein_1=float(wasserstein_distance(sides["synthetic"], sides["real"])),
        kolmogorov_smirnov=float(ks_2samp(sides["synthetic"], sides["real"], method="asymp").statistic),
    )
