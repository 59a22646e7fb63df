"""Estimates of exact votes from released ones: post-processing, which costs no privacy.

A released count is the exact one plus normal noise of known deviation. Most candidates have fewer votes than that, so
that noisy counts as they are would be mostly noise.

- The cells of the first round in a column: the most likely counts that are at least 0 and add up to the number of rows.
- Parts of a cell, and pairs of candidates, are shrunk towards what is expected without their votes: towards even parts,
  and towards independent columns. How far is learned from all released counts of a view together (empirical Bayes): the
  ratio of exact to expected counts has a distribution on a grid of ratios, which is fitted to the released counts; the
  estimate is the posterior mean.

Source: Robbins, "An Empirical Bayes Approach to Statistics" (1956); Hay et al., "Boosting the Accuracy of
Differentially Private Histograms Through Consistency" (2010), for counts of cells and of their parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dpassay.base.arrays import Floats, Integers

_RATIOS = np.concatenate([[0.0], 2.0 ** np.arange(-4, 13.5, 0.5)])
_SPREAD = 0.18  # each ratio stands for a normal distribution of this relative deviation, so that they leave no gaps
_FLOOR = 0.02
_LIKELY = np.exp(-0.5 * (np.log2(np.maximum(_RATIOS, 2.0**-6)) / 1.5) ** 2)
_STEPS = 40


def shrunk(noisy: Floats, expected: Floats, deviations: Floats) -> Floats:
    """Posterior means of counts, all at least 0, in the shape of the arguments.

    Args:
        noisy: released counts.
        expected: what they are expected to be without them, at least 0.
        deviations: of the noise, above 0; at least as large an array of numbers.
    """
    y, e, s = (np.asarray(item, dtype=np.float64).ravel()[:, None] for item in (noisy, expected, deviations))
    e = np.maximum(e, 1e-9)
    means = np.minimum(e * _RATIOS, e.sum())  # no count is more than all rows
    variances = np.maximum(_SPREAD * means, _FLOOR * e) ** 2
    total = variances + s * s
    logs = -0.5 * ((y - means) ** 2 / total + np.log(total))
    likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
    first = _LIKELY / _LIKELY.sum()
    weights = first
    for _ in range(_STEPS):
        evidence = np.einsum("ij,j->i", likelihoods, weights)  # no BLAS: equal votes give equal rows on any threads
        weights = weights * np.einsum("ij,i->j", likelihoods, 1 / evidence) + first
        weights = weights / weights.sum()
    posterior = likelihoods * weights
    posterior /= posterior.sum(axis=1, keepdims=True)
    of_each = (y * variances + means * s * s) / total
    return np.asarray(np.maximum((posterior * of_each).sum(axis=1), 0.0).reshape(np.shape(noisy)), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnVotes:
    """Released votes for the cells of a column in one round.

    Attributes:
        starts: first position of each cell, shape (cells,).
        noisy: released votes, shape (cells,).
        deviation: of their noise.
    """

    starts: Integers
    noisy: Floats
    deviation: float


def column_counts(rounds: Sequence[ColumnVotes], sizes: Sequence[Floats], total: float) -> Floats:
    """Estimated numbers of rows in the cells of the last round, shape (cells,), from the votes of all rounds.

    Args:
        rounds: each divides cells of the one before.
        sizes: the number of positions in each cell, for every round.
        total: the public number of rows.
    """
    parents = [np.searchsorted(before.starts, after.starts, side="right") - 1 for before, after in pairwise(rounds)]
    combined = _from_parts(rounds, parents)
    estimate = _on_simplex(*combined[0], total)
    for (counts, variances), parent, before, after in zip(combined[1:], parents, sizes, sizes[1:], strict=False):
        expected = estimate[parent] * after / before[parent]
        result, parts = expected.copy(), after < before[parent]
        if parts.any():
            result[parts] = shrunk(counts[parts], expected[parts], np.sqrt(variances[parts]))
        estimate = _scaled(result, parent, estimate)
    return estimate


def _from_parts(rounds: Sequence[ColumnVotes], parents: Sequence[Integers]) -> list[tuple[Floats, Floats]]:
    """For each round, counts of cells from their own votes and those of their parts in later rounds, and variances."""
    last = rounds[-1]
    results = [(last.noisy, np.full(len(last.noisy), last.deviation**2))]
    for votes, parent in zip(reversed(rounds[:-1]), reversed(parents), strict=True):
        counts, variances = (np.bincount(parent, item, minlength=len(votes.starts)) for item in results[0])
        own = votes.deviation**2
        variance = 1 / (1 / own + 1 / variances)
        results.insert(0, ((votes.noisy / own + counts / variances) * variance, variance))
    return results


def _scaled(counts: Floats, parent: Integers, totals: Floats | Sequence[float]) -> Floats:
    """Counts in proportion to `counts`, which add up to given totals of their parents."""
    wanted = np.asarray(totals, dtype=np.float64)
    found = np.bincount(parent, counts, minlength=len(wanted))
    return np.asarray(counts * np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)[parent])


def margins(own: Floats, variance: float, others: Sequence[tuple[Floats, float]], total: float) -> Floats:
    """Shares of the candidates of a column, from its own counts and from its pairs with other columns, shape (count,).

    Args:
        own: estimated counts, shape (count,).
        variance: of their error.
        others: released votes of pairs, shape (count, candidates of the other column), and their deviations.
        total: the public number of rows.
    """
    sums, precision = own / variance, np.full(len(own), 1 / variance)
    for noisy, deviation in others:
        weight = 1 / (deviation**2 * noisy.shape[1])
        sums, precision = sums + noisy.sum(axis=1) * weight, precision + weight
    return _on_simplex(sums / precision, 1 / precision, total) / total


def _on_simplex(counts: Floats, variances: Floats, total: float) -> Floats:
    """The most likely counts that are at least 0 and add up to a total: max(yᵢ − λ·vᵢ, 0) for one λ."""
    ratios = counts / variances
    order = np.argsort(-ratios, kind="stable")
    excess = (np.cumsum(counts[order]) - total) / np.cumsum(variances[order])
    last = np.flatnonzero(ratios[order] > excess)[-1]
    return np.asarray(np.maximum(counts - excess[last] * variances, 0.0), dtype=np.float64)


def pair_counts(noisy: Floats, deviation: float, expected: Floats, first: Floats, second: Floats) -> Floats:
    """Estimated numbers of rows of a pair of columns, shape (candidates, candidates), with given sums.

    Args:
        noisy: released votes.
        deviation: of their noise.
        expected: what they are expected to be without them.
        first, second: numbers of rows of each column's candidates, with the same sum.
    """
    counts = shrunk(noisy, expected, np.asarray(deviation)) + 1e-12
    for _ in range(20):
        counts *= (first / np.maximum(counts.sum(axis=1), 1e-12))[:, None]
        counts *= (second / np.maximum(counts.sum(axis=0), 1e-12))[None]
    return counts
