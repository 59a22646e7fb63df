"""The Fréchet distance against closed forms and 50 digits; fits in pieces; intervals that cover."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpassay.utility.frechet import GaussianFit, Moments, compare_embeddings, embedded_moments

Floats = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


def frechet_distance(mean_1: Floats, covariance_1: Floats, mean_2: Floats, covariance_2: Floats) -> float:
    """The distance of two fits of given moments. The scatter of two rows is a factor of their covariance itself."""

    def fit(mean: Floats, covariance: Floats) -> GaussianFit:
        values, vectors = np.linalg.eigh(covariance)
        rounding = len(mean) * EPS * np.abs(covariance).max()  # an eigenvalue below it may be 0
        return GaussianFit(2, mean, (np.sqrt(np.where(values > rounding, values, 0)) * vectors).T)

    return fit(mean_1, covariance_1).distance(fit(mean_2, covariance_2))


def rotation(d: int, seed: int) -> Floats:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d))).Q)


def by_mpmath(mean_1: Floats, cov_1: Floats, mean_2: Floats, cov_2: Floats) -> float:
    """The definition in 60 digits: roots of the eigenvalues of Σ₁Σ₂, which are real and not negative."""
    with mpmath.workdps(60):
        a, b = mpmath.matrix(cov_1.tolist()), mpmath.matrix(cov_2.tolist())
        roots = mpmath.eig(a * b, left=False, right=False)
        together = sum(mpmath.sqrt(max(mpmath.re(root), mpmath.mpf(0))) for root in roots)
        apart = sum((mpmath.mpf(x) - mpmath.mpf(y)) ** 2 for x, y in zip(mean_1.tolist(), mean_2.tolist(), strict=True))
        trace = sum(a[i, i] + b[i, i] for i in range(a.rows))
        return float(apart + trace - 2 * together)


def test_diagonal_covariances() -> None:
    """Σ (√a − √b)², for variances over ten orders of magnitude."""
    a, b = np.geomspace(1e-6, 1e4, 9), np.geomspace(1e3, 1e-5, 9)
    mean = np.linspace(-1, 1, 9)
    expected = np.square(mean).sum() + np.square(np.sqrt(a) - np.sqrt(b)).sum()
    # Sums of 9 terms of at most the traces.
    rounding = 100 * EPS * (a.sum() + b.sum())
    assert frechet_distance(mean, np.diag(a), 0 * mean, np.diag(b)) == pytest.approx(expected, rel=0, abs=rounding)


def test_commuting_covariances() -> None:
    a, b = np.linspace(0.5, 3, 7), np.linspace(4, 0.1, 7)
    turn = rotation(7, 1)
    result = frechet_distance(np.zeros(7), (turn * a) @ turn.T, np.ones(7), (turn * b) @ turn.T)
    assert result == pytest.approx(7 + np.square(np.sqrt(a) - np.sqrt(b)).sum(), rel=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_general_covariances_in_many_digits(seed: int) -> None:
    draw = np.random.default_rng(seed)
    covariances = [(of := draw.normal(size=(6, 9))) @ of.T for _ in range(2)]
    means = draw.normal(size=(2, 6))
    result = frechet_distance(means[0], covariances[0], means[1], covariances[1])
    assert result == pytest.approx(by_mpmath(means[0], covariances[0], means[1], covariances[1]), rel=1e-12)


def test_low_rank_from_rows_in_many_digits() -> None:
    """3 and 4 rows in 8 dimensions: the product of the covariances is singular, and no root of rounding appears."""
    draw = np.random.default_rng(5)
    rows = [draw.integers(-8, 8, size=(n, 8)).astype(float) for n in (3, 5)]  # exact in few digits
    fits = [GaussianFit.of(of) for of in rows]
    # Covariances in whole numbers over n − 1 and n: no rounding in what the oracle is given.
    with mpmath.workdps(60):
        centred = [mpmath.matrix((len(of) * of - of.sum(axis=0)).tolist()) / len(of) for of in rows]
        a, b = ((of.T * of) / (of.rows - 1) for of in centred)
        roots = mpmath.eig(a * b, left=False, right=False)
        together = sum(mpmath.sqrt(max(mpmath.re(root), mpmath.mpf(0))) for root in roots)
        trace = sum(a[i, i] + b[i, i] for i in range(8))
        expected = float(trace - 2 * together) + float(np.square(rows[0].mean(axis=0) - rows[1].mean(axis=0)).sum())
    assert fits[0].distance(fits[1]) == pytest.approx(expected, rel=1e-12)


def test_covariances_on_orthogonal_subspaces() -> None:
    """Nothing in common: the distance is the sum of the traces."""
    turn = rotation(6, 2)
    a, b = turn[:, :3] @ turn[:, :3].T, turn[:, 3:] @ turn[:, 3:].T
    assert frechet_distance(np.zeros(6), (a + a.T) / 2, np.zeros(6), (b + b.T) / 2) == pytest.approx(6, rel=1e-13)


def test_a_gaussian_is_at_distance_zero_of_itself() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 5)) * np.geomspace(1e-9, 1e3, 5)
    fit = GaussianFit.of(rows)
    assert 0 <= fit.distance(fit) <= 100 * EPS * np.square(fit.factor).sum()


def test_small_variances_do_not_drown() -> None:
    """Deviations 1 and 1e-10: a covariance would keep 4 digits of the second root, a factor keeps them all."""
    base = np.random.default_rng(3).normal(size=(50, 2))
    base[:, 1] *= 1e-10
    base -= base.mean(axis=0)
    wider = base * [1, 3]
    deviation = base[:, 1].std(ddof=1)
    first, second = GaussianFit.of(base), GaussianFit.of(wider)
    values = np.linalg.svd(first.factor @ second.factor.T, compute_uv=False)
    # The product of the singular values is √(|Σ₁||Σ₂|), for two columns with a correlation.
    correlation = np.atleast_2d(np.corrcoef(base.T))[0, 1]
    product = 3 * base[:, 0].var(ddof=1) * deviation**2 * (1 - correlation**2)
    assert values.prod() == pytest.approx(product, rel=1e-5)  # the smallest factor is 1e-10 of the rows' rounding 1e-16


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 30, 3), (100,)])
def test_pieces_add_up(sizes: tuple[int, ...]) -> None:
    rows = np.random.default_rng(4).normal(size=(sum(sizes), 4)) + 100
    pieces = np.split(rows, np.cumsum(sizes)[:-1])
    fit = GaussianFit.of(pieces[0])
    for piece in pieces[1:]:
        fit = fit + GaussianFit.of(piece)
    assert fit.count == len(rows)
    np.testing.assert_allclose(fit.mean, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(fit.factor.T @ fit.factor, np.cov(rows.T), rtol=0, atol=1e-11)


def moments_of(rows: Floats, seed: int) -> Moments:
    moments = Moments(len(rows), seed)
    for piece in np.array_split(rows, 3):
        moments.add(piece)
    return moments


def test_group_moments_are_those_of_the_rows() -> None:
    """With every group once, the weighted moments are those of all rows; with some, of the rows in them."""
    rows = np.random.default_rng(6).normal(size=(120, 3)) + 5
    moments = moments_of(rows, 0)
    groups = len(moments.counts)
    assert groups == 50
    mean, covariance = moments.weighted(np.ones(groups, dtype=np.int64))
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(rows.T), atol=1e-12)
    few = moments_of(rows[:6], 0)  # one row a group
    weights = np.array([2, 0, 1, 0, 3, 0])
    own = np.repeat(rows[:6], weights[few.order], axis=0)
    np.testing.assert_allclose(few.weighted(weights)[0], own.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(few.weighted(weights)[1], np.cov(own.T), atol=1e-12)


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    """60 pairs of samples of Gaussians whose distance is known; intervals at 95 %.

    At a coverage of 0.93 fewer than 47 are hit with probability 5e-5 (binomial), which is the probability of a false
    alarm; at a coverage of 0.7 with probability 0.9.
    """
    mean, scale = np.array([0.5, 0, 0]), np.array([1, 1.5, 0.7])
    truth = float(np.square(mean).sum() + np.square(1 - scale).sum())
    draw = np.random.default_rng(7)
    hit = 0
    for trial in range(60):
        first, second = draw.normal(size=(2, 1000, 3))
        result = compare_embeddings(moments_of(first, trial), moments_of(mean + scale * second, trial + 1), seed=trial)
        assert result.interval is not None
        assert result.corrected is not None
        low, high = result.interval
        hit += low <= truth <= high
        assert low <= result.corrected <= high
    assert hit >= 47


def test_equal_distributions_are_foretold() -> None:
    """300 and 900 texts of one law in 10 dimensions: the mean over 20 pairs is near what is foretold.

    A distance is a sum of some 65 squares and deviates by √(2/65) = 0.18, a mean of 20 by 0.04, the foretold one by
    about as much: 20 % are more than 3.5 deviations, and the seed is fixed.
    """
    draw = np.random.default_rng(8)
    pairs = [
        (moments_of(draw.normal(size=(300, 10)), i), moments_of(draw.normal(size=(900, 10)), i)) for i in range(20)
    ]
    results = [compare_embeddings(*pair) for pair in pairs]
    values = np.mean([of.value for of in results])
    assert values == pytest.approx(np.mean([of.sampling_alone for of in results]), rel=0.2)


def test_high_dimensions_have_a_value_and_no_interval() -> None:
    rows = np.random.default_rng(9).normal(size=(4, 1025))
    result = compare_embeddings(moments_of(rows, 0), moments_of(rows + 1, 0))
    assert result.value == pytest.approx(1025, rel=1e-9)
    assert result.interval is None
    assert result.sampling_alone is None


def test_one_text_has_no_covariance() -> None:
    with pytest.raises(ValueError, match="at least 2 texts, not 1"):
        embedded_moments(["one"], lambda texts: np.zeros((len(texts), 2), dtype=np.float32))


def test_texts_are_embedded_in_pieces() -> None:
    seen: list[int] = []

    def embed(texts: object) -> NDArray[np.float32]:
        assert isinstance(texts, list)
        seen.append(len(texts))
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    moments = embedded_moments(["a", "bb", "ccc"] * 700, embed)
    assert max(seen) <= 1024
    assert moments.fit is not None
    np.testing.assert_allclose(moments.fit.mean, [2, 1])


def test_an_embedder_that_gives_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        embedded_moments(["a", "b"], lambda texts: np.full((len(texts), 2), np.nan, dtype=np.float32))
