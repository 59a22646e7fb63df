"""The Fréchet distance of Gaussian fits of embeddings, and how uncertain it is. It is private.

For N(μ₁, Σ₁) and N(μ₂, Σ₂) the squared distance is |μ₁ − μ₂|² + tr Σ₁ + tr Σ₂ − 2 tr (Σ₁Σ₂)^{1/2} (Dowson and Landau
1982); the square is what is reported under the name Fréchet distance since Heusel et al. (2017), and here.

No matrix square root is taken. With any factors Σ = FᵀF, the product Σ₁Σ₂ = F₁ᵀF₁F₂ᵀF₂ has the same non-zero
eigenvalues as (F₁F₂ᵀ)(F₁F₂ᵀ)ᵀ, so tr (Σ₁Σ₂)^{1/2} is the sum of the singular values of F₁F₂ᵀ: real, not negative, and
as good for covariances of low rank as for others. A factor comes from the rows by QR, without forming a covariance, so
small variances do not drown in the rounding of large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats, Integers
from dpassay.utility.result import Result, Sides

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to vectors, shape (N, d)."""

GROUPS = 50
REPLICATES = 200
HALVINGS = 20
_GROUP_BYTES = 2**28  # of second moments of groups, on each side
_MAX_DIMENSIONS = 1024  # that are resampled; the time goes with the cube
_ROWS = 1024  # texts embedded at once


@dataclass(frozen=True, slots=True, eq=False)
class GaussianFit:
    """The mean μ of n rows, shape (d,), and their scatter, shape (k, d), with scatterᵀ scatter = Σ (x − μ)(x − μ)ᵀ."""

    count: int
    mean: Floats
    scatter: Floats

    @classmethod
    def of(cls, rows: ArrayLike) -> GaussianFit:
        """The fit of rows, shape (n, d), n ≥ 1."""
        values = np.asarray(rows, dtype=np.float64)
        mean = values.mean(axis=0)
        return cls(len(values), mean, _triangle(values - mean))

    def __add__(self, other: GaussianFit) -> GaussianFit:
        """The fit of the rows of both (Chan, Golub and LeVeque 1979, for factors)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        between = np.sqrt(self.count * other.count / count) * apart
        stacked = np.concatenate([self.scatter, other.scatter, between[None]])
        return GaussianFit(count, self.mean + apart * (other.count / count), _triangle(stacked))

    @property
    def factor(self) -> Floats:
        """F with FᵀF = Σ, the unbiased covariance."""
        return np.asarray(self.scatter / np.sqrt(self.count - 1))

    def distance(self, other: GaussianFit) -> float:
        """The squared Fréchet distance of the two Gaussians."""
        together = np.linalg.svd(self.factor @ other.factor.T, compute_uv=False).sum()
        spread = np.square(self.factor).sum() + np.square(other.factor).sum() - 2 * together
        return float(np.square(self.mean - other.mean).sum() + max(spread, 0.0))


def _triangle(rows: Floats) -> Floats:
    """R with RᵀR = rowsᵀ rows, of at most d rows."""
    return np.asarray(np.linalg.qr(rows, mode="r"), dtype=np.float64)


class Moments:
    """The Gaussian fit of embedded texts, and the moments of random groups of them, which are resampled.

    Attributes:
        count: n.
        fit: of all rows so far.
        counts: shape (G,), rows in each group.
        shift: shape (d,), taken off every row before it is summed, against cancellation.
        sums: shape (G, d), of the shifted rows.
        squares: shape (G, d, d), Σ xxᵀ of the shifted rows; None in more than 1024 dimensions.
    """

    def __init__(self, count: int, seed: int) -> None:
        if validate.integer(count=count) < 2:
            raise ValueError(f"a Gaussian is fitted to at least 2 texts, not {count}")
        self.count = count
        self.fit: GaussianFit | None = None
        self.squares: Floats | None = None
        self.order = np.random.default_rng(seed).permutation(count)
        self._done = 0

    def add(self, rows: ArrayLike) -> None:
        """Takes the next rows, shape (m, d).

        Raises:
            ValueError: for another shape, or numbers that are not finite.
        """
        values = np.asarray(rows, dtype=np.float64)
        if values.ndim != 2 or not np.isfinite(values).all():
            raise ValueError("an embedder must give an array of shape (texts, dimensions) of finite numbers")
        fit = GaussianFit.of(values)
        if self.fit is None:
            self._begin(fit.mean)
        self.fit = fit if self.fit is None else self.fit + fit
        own = self._group[self._done : self._done + len(values)]
        self._done += len(values)
        if self.squares is None:
            return
        shifted = values - self.shift
        for group in np.unique(own):
            members = shifted[own == group]
            self.sums[group] += members.sum(axis=0)
            self.squares[group] += members.T @ members

    def _begin(self, shift: Floats) -> None:
        groups = min(GROUPS, self.count, max(1, _GROUP_BYTES // (8 * len(shift) ** 2)))
        self._group = self.order % groups
        self.counts = np.bincount(self._group)
        self.shift = shift
        if len(shift) <= _MAX_DIMENSIONS:
            self.sums = np.zeros((groups, len(shift)))
            self.squares = np.zeros((groups, len(shift), len(shift)))

    def weighted(self, weights: NDArray[np.integer]) -> tuple[Floats, Floats]:
        """Mean and covariance with each group taken `weights` times, shape (G,)."""
        assert self.squares is not None
        count = int(weights @ self.counts)
        mean = (weights @ self.sums) / count
        squares = np.tensordot(weights.astype(np.float64), self.squares, axes=1)
        return mean + self.shift, (squares - count * np.outer(mean, mean)) / (count - 1)


def embedded_moments(
    texts: Sequence[str], embed: Embed, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> Moments:
    """Embeds texts, a thousand at a time, and keeps only their moments.

    Args:
        texts: at least 2.
        embed: texts to vectors.
        seed: of the public choice of groups.
        progress: called with the texts done and in all.
    """
    moments = Moments(len(texts), seed)
    for begin in range(0, len(texts), _ROWS):
        moments.add(embed(texts[begin : begin + _ROWS]))
        if progress:
            progress(min(begin + _ROWS, len(texts)), len(texts))
    return moments


@dataclass(frozen=True)
class FrechetComparison(Result):
    """The squared Fréchet distance of two sets of embeddings, all values in the squared unit of the vectors.

    Attributes:
        value: the plain estimate, ≥ 0.
        corrected: the estimate with the bootstrap's estimate of its bias taken off, ≥ 0; None in more than 1024
            dimensions.
        interval: lower and upper end of the bootstrap interval of the distance, ≥ 0; None in more than 1024 dimensions.
        sampling_alone: the plain estimate that equal distributions would give on average, ≥ 0; None in more than 1024
            dimensions or with fewer than 4 real texts.
        confidence: of the interval, in (0, 1).
        dimensions: of the vectors.
        texts: the number of texts embedded on each side.
    """

    value: float
    corrected: float | None
    interval: tuple[float, float] | None
    sampling_alone: float | None
    confidence: float
    dimensions: int
    texts: Sides[int]


def compare_embeddings(
    synthetic: Moments, real: Moments, *, confidence: float = defaults.CONFIDENCE, seed: int = 0
) -> FrechetComparison:
    """The squared Fréchet distance with a bootstrap interval, and what sampling alone would make it.

    The plain estimate θ̂ is too large, by about a constant over n. `corrected` takes the bootstrap's estimate of that
    bias off, 2θ̂ − mean θ*, and the interval is the basic bootstrap's, [2θ̂ − q₊, 2θ̂ − q₋] with quantiles q of the
    resampled distances (Davison and Hinkley 1997, section 5.2), so θ̂ may lie above it. Both are cut at 0. Random groups
    of texts are resampled as a whole. Where n is not well above d, neither is worth much.
    `sampling_alone` is what equal distributions would come to at these numbers of texts: the mean distance of random
    halves of the real texts, scaled by (1/n₁ + 1/n₂)/(4/n₂), because that bias goes with 1/n (Chong and Forsyth 2020).
    """
    validate.open_probability(confidence=confidence)
    assert synthetic.fit is not None
    assert real.fit is not None
    value = synthetic.fit.distance(real.fit)
    dimensions, texts = len(real.fit.mean), Sides(synthetic.count, real.count)
    if synthetic.squares is None or real.squares is None:
        return FrechetComparison(value, None, None, None, confidence, dimensions, texts)
    draw = np.random.default_rng(seed)
    resampled = [
        _by_moments(
            *synthetic.weighted(_with_replacement(synthetic, draw)), *real.weighted(_with_replacement(real, draw))
        )
        for _ in range(REPLICATES)
    ]
    low, high = np.quantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    corrected = max(0.0, float(2 * value - np.mean(resampled)))
    interval = max(0.0, float(2 * value - high)), max(0.0, float(2 * value - low))
    groups, sampling_alone = len(real.counts), None
    if groups >= 4:
        halves = [draw.permutation(groups) < groups // 2 for _ in range(HALVINGS)]
        apart = np.mean([_by_moments(*real.weighted(half * 1), *real.weighted(~half * 1)) for half in halves])
        sampling_alone = float(apart) * (1 + real.count / synthetic.count) / 4
    return FrechetComparison(value, corrected, interval, sampling_alone, confidence, dimensions, texts)


def _with_replacement(moments: Moments, draw: np.random.Generator) -> Integers:
    groups = len(moments.counts)
    return draw.multinomial(groups, np.full(groups, 1 / groups))


def _by_moments(mean_1: Floats, covariance_1: Floats, mean_2: Floats, covariance_2: Floats) -> float:
    """The distance from covariances, faster than `_distance`; its error is that of a root of the rounding."""
    values, vectors = np.linalg.eigh(covariance_1)
    factor = np.sqrt(np.maximum(values, 0)) * vectors
    together = np.sqrt(np.maximum(np.linalg.eigvalsh(factor.T @ covariance_2 @ factor), 0)).sum()
    spread = np.trace(covariance_1) + np.trace(covariance_2) - 2 * together
    return float(np.square(mean_1 - mean_2).sum() + max(spread, 0.0))
