"""Powers of measures by transforms: each weight is off by no more than is said, of many copies and of rare losses."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpassay.accounting.lattice import convolution
from dpassay.accounting.lattice.measure import Measure, block_sum, suffix_sums
from dpassay.base.arrays import Floats

STEP = 2.0**-10


def part_of(weights: Floats, count: int) -> convolution.Tilted:
    """Weights as `products` holds them, not tilted, on losses that begin at 0."""
    measure = Measure(0.0, STEP, weights, 0.0, 0.0)
    return convolution.Tilted(measure, count, measure.losses(), weights, 0.0, 0.0)


def exact_power(weights: Floats, count: int, most: int) -> list[float]:
    """Coefficients 0 … most − 1 of (Σ w_k x^k)^n to 60 digits or more, by Euler's recurrence for powers of a series."""
    with mpmath.workdps(60 + 5 * most):  # the recurrence loses up to four digits a term
        first = next(k for k, weight in enumerate(weights) if weight)
        terms = {k: mpmath.mpf(float(weight)) for k, weight in enumerate(weights[first:]) if weight}
        power = [terms[0] ** count]
        for m in range(1, most):
            total = mpmath.fsum(((count + 1) * k - m) * terms[k] * power[m - k] for k in terms if 0 < k <= m)
            power.append(total / (m * terms[0]))
        return [0.0] * (first * count) + [float(each) for each in power]


def rounded_power(weights: Floats, count: int, size: int) -> Floats:
    """The cyclic power by repeated squaring in 53 + 11 bits or more, for counts that exact arithmetic cannot reach."""
    base: NDArray[Any] = np.zeros(size, dtype=np.longdouble)
    result: NDArray[Any] | None = None
    base[: weights.size] = weights
    while count:
        if count & 1:
            result = base if result is None else cyclic(result, base)
        base, count = cyclic(base, base), count >> 1
    return np.asarray(result)


def cyclic(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    whole = np.convolve(first, second)
    whole[: whole.size - first.size] += whole[first.size :]
    return whole[: first.size]


@pytest.mark.parametrize("count", [64, 200, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_every_weight_is_within_its_error(count: int, seed: int) -> None:
    """A likely cell with rare ones far from it, so that the product of hundreds hardly leaves the window."""
    chance = random.Random(seed)
    weights = np.zeros(40)
    weights[3:6] = [1e-4, 1.0, 2e-4]
    weights[[chance.randrange(7, 40) for _ in range(5)]] = 10.0 ** -chance.randint(6, 12)
    weights /= weights.sum()
    size = 512
    result = convolution.convolved_by_logarithm([part_of(weights, count)], size, -np.inf, 1e-30)
    plain, plain_error = convolution.convolved([part_of(weights, count)], size)
    truth = np.array(exact_power(weights, count, 400)[: 4 * count + 300])
    beyond = truth.size - 3 * count  # the recurrence begins at the first cell
    for weight, error in ((result.weights, result.error), (plain, plain_error)):
        for k in range(4 * count - 20, 3 * count + beyond):
            assert abs(weight[k % size] - truth[k]) <= error + result.scale_error * truth[k]
    assert result.error < plain_error / 10


@pytest.mark.skipif(bool(np.finfo(np.longdouble).eps > 2e-19), reason="no longer floats here")
@pytest.mark.parametrize("count", [10**4, 10**6, 10**8])
@pytest.mark.parametrize("wide", [False, True])
def test_of_many_copies_the_error_does_not_grow_with_their_number(count: int, wide: bool) -> None:
    """One cell with rare others, and a bell over many cells of which only low frequencies are left."""
    size = 1024
    if wide:
        weights = np.exp(-((np.arange(9.0) - 4) ** 2) * 2)
        weights *= 300 / count / max(weights.sum() - weights.max(), 1e-300)
        weights[4] = 0.0
        weights[4] = 1 - weights.sum()
    else:
        weights = np.zeros(300)
        weights[[0, 7, 90, 299]] = [1.0, 3.0 / count, 0.5 / count, 1e-3 / count]
        weights[0] = 1 - weights[1:].sum()
    result = convolution.convolved_by_logarithm([part_of(weights, count)], size, -np.inf, 1e-30)
    truth = rounded_power(weights, count, size)
    # Each of some 40 squarings of sums of 1024 terms errs by a relative 2^-64 a term, and errors double.
    own = float(np.finfo(np.longdouble).eps) * 1100 * 2 * count
    room = result.error + (result.scale_error + own) * np.asarray(truth, dtype=np.float64)
    assert (np.abs(result.weights - truth) <= room).all()
    assert result.error < 1e-13
    assert result.error < convolution.convolved([part_of(weights, count)], size)[1]


@pytest.mark.parametrize("count", [64, 300])
def test_rare_losses_alone_reach_the_focus(count: int) -> None:
    """What the split leaves out lies below the focus, but for `missing`; above it every weight is within its error."""
    weights = np.zeros(60)
    weights[[0, 1, 25, 50]] = [1.0, 1e-3, 1e-7, 1e-8]
    weights /= weights.sum()
    focus, size = 20.5 * STEP, 512
    result = convolution.convolved_by_logarithm([part_of(weights, count)], size, focus, 1e-13)
    assert result.floor == focus
    assert 0 < result.missing < 1e-13
    truth = exact_power(weights, count, 120)
    left_out = [max(0.0, truth[k] - result.weights[k] - result.error) for k in range(21, 120)]
    assert sum(left_out) <= result.missing + result.scale_error
    for k in range(21, 120):
        assert result.weights[k] - result.error <= truth[k] * (1 + result.scale_error)
    assert result.error < 1e-17 < convolution.convolved([part_of(weights, count)], size)[1]


@pytest.mark.parametrize("size", [0, 1, 128, 257, 1000, 40_000])
def test_running_sums_are_within_their_relative_error(size: int) -> None:
    terms = np.random.default_rng(size).exponential(size=size) ** 8
    sums, error = suffix_sums(terms)
    total = Fraction(0)
    for k in range(size - 1, -1, -1):
        total += Fraction(float(terms[k]))
        if k % 97 == 0:
            assert abs(Fraction(float(sums[k])) - total) <= total * Fraction(error)
    assert abs(Fraction(block_sum(terms)) - total) <= total * 130 * Fraction(2) ** -53


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "sin", "cos"])
def test_elementary_functions_err_by_at_most_four_units(name: str) -> None:
    """What every bound on rounding rests on, at 40 digits; phases of powers are as large as 10⁶. A cosine is used to an
    absolute 4u only."""
    chance = np.random.default_rng(7)
    sizes = 10.0 ** chance.uniform(-12, {"exp": 2.8, "expm1": 2.8}.get(name, 6), 4000)
    arguments = sizes * (1.0 if name == "log" else chance.choice([-1.0, 1.0], sizes.size))
    if name == "log1p":
        arguments = np.where(arguments < -1 + 1e-9, -arguments, arguments)
    result = getattr(np, name)(arguments)
    with mpmath.workdps(40):
        for argument, value in zip(arguments, result, strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(argument)))
            assert abs(mpmath.mpf(float(value)) - exact) <= 4 * mpmath.mpf(2) ** -53 * (
                1 if name == "cos" else abs(exact)
            )


def test_arctan2_errs_by_at_most_four_units() -> None:
    chance = np.random.default_rng(8)
    y, x = chance.choice([-1.0, 1.0], 4000) * 10.0 ** chance.uniform(-12, 0, 4000), chance.uniform(0.3, 1.1, 4000)
    with mpmath.workdps(40):
        for first, second, value in zip(y, x, np.arctan2(y, x), strict=True):
            exact = mpmath.atan2(mpmath.mpf(float(first)), mpmath.mpf(float(second)))
            assert abs(mpmath.mpf(float(value)) - exact) <= 4 * mpmath.mpf(2) ** -53 * abs(exact)
