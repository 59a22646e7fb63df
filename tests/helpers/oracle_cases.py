"""Random single mechanisms, each twice: as a dominating pair and as its exact law."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import oracle
from dp_accounting import dp_event
from scipy.special import ndtr

from dpassay.accounting.lattice.accountant import dominating_pair
from dpassay.accounting.lattice.laws import Law, Tails
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.base.arrays import Floats


@dataclass(frozen=True)
class Case:
    """One mechanism."""

    label: str
    pair: DominatingPair
    exact: oracle.Exact


def log_uniform(chance: random.Random, low: float, high: float) -> float:
    return 10 ** chance.uniform(math.log10(low), math.log10(high))


class Cdfs(Law):
    """A pair on the line given by its cdfs, with a loss that increases with x.

    Args:
        p_cdf, p_sf, q_cdf, q_sf: vectorised cdfs and survival functions (1 − cdf, without its cancellation).
        inverse: vectorised, b ↦ x with L(x) = b.
        error: relative error of the four functions.
        shift: bound on |L(inverse(b)) − b|.
    """

    def __init__(
        self,
        p_cdf: Callable[[Floats], Floats],
        p_sf: Callable[[Floats], Floats],
        q_cdf: Callable[[Floats], Floats],
        q_sf: Callable[[Floats], Floats],
        inverse: Callable[[Floats], Floats],
        *,
        error: float,
        shift: float,
    ) -> None:
        self._sides = (p_sf, p_cdf, q_sf, q_cdf)
        self._inverse, self._error, self._shift = inverse, error, shift

    def tails(self, thresholds: Floats) -> Tails:
        x = np.asarray(self._inverse(thresholds), dtype=np.float64)
        p_above, p_below, q_above, q_below = (np.asarray(side(x), dtype=np.float64) for side in self._sides)
        error, shift = np.full(x.shape, self._error), np.full(x.shape, self._shift)
        return Tails(p_above, p_below, q_above, q_below, error, shift)


def gaussian_by_cdfs(mu: float) -> DominatingPair:
    """N(μ, 1) against N(0, 1) in a form in which nothing but the lattice can answer.

    Errors: ndtr 1e-13 relative, and x − μ rounded by 2⁻⁵²·|x| times a hazard of at most |x| + 1, |x| below 40.
    """
    law = Cdfs(
        lambda x: np.asarray(ndtr(x - mu)),
        lambda x: np.asarray(ndtr(mu - x)),
        lambda x: np.asarray(ndtr(x)),
        lambda x: np.asarray(ndtr(-x)),
        lambda loss: loss / mu + mu / 2,
        error=1e-12,
        shift=1e-13,
    )
    return DominatingPair.of(law, label=f"cdfs({id(law)})")


def _gaussian(chance: random.Random) -> Case:
    sigma, sensitivity = log_uniform(chance, 0.1, 100), chance.choice([1.0, 0.3])
    pair = DominatingPair.gaussian(sigma, sensitivity)
    return Case(f"gaussian({sigma}, {sensitivity})", pair, oracle.gaussian(sigma, sensitivity))


def _gaussian_by_cdfs(chance: random.Random) -> Case:
    mu = log_uniform(chance, 0.02, 8)
    return Case(f"gaussian by cdfs({mu})", gaussian_by_cdfs(mu), oracle.gaussian(1 / oracle.real(mu)))


def _laplace(chance: random.Random) -> Case:
    scale, sensitivity = log_uniform(chance, 0.05, 50), chance.choice([1.0, 3.0])
    pair = DominatingPair.laplace(scale, sensitivity)
    return Case(f"laplace({scale}, {sensitivity})", pair, oracle.sampled_laplace(scale, 1, sensitivity))


def _discrete_gaussian(chance: random.Random) -> Case:
    sigma, sensitivity = log_uniform(chance, 0.5, 40), chance.choice([1, 1, 2, 5])
    pair = DominatingPair.discrete_gaussian(sigma, sensitivity)
    return Case(f"discrete_gaussian({sigma}, {sensitivity})", pair, oracle.discrete_gaussian(sigma, sensitivity))


def _discrete_laplace(chance: random.Random) -> Case:
    parameter, sensitivity = log_uniform(chance, 0.01, 5), chance.choice([1, 1, 2, 7])
    pair = DominatingPair.discrete_laplace(parameter, sensitivity)
    return Case(f"discrete_laplace({parameter}, {sensitivity})", pair, oracle.discrete_laplace(parameter, sensitivity))


def _randomised_response(chance: random.Random) -> Case:
    uniform, buckets, null = chance.uniform(0.01, 0.99), chance.choice([2, 2, 3, 10]), chance.random() < 0.5
    event = dp_event.RandomizedResponseDpEvent(uniform, buckets)
    pair = dominating_pair(event, "zero_out" if null else "replace_one")
    exact = oracle.randomised_response(uniform, buckets, null=null)
    return Case(f"randomised_response({uniform}, {buckets}, {null})", pair, exact)


def _approx_dp(chance: random.Random) -> Case:
    epsilon, delta = log_uniform(chance, 0.01, 9), chance.choice([0.0, log_uniform(chance, 1e-12, 0.3)])
    pair = DominatingPair.approx_dp(epsilon, delta)
    return Case(f"approx_dp({epsilon}, {delta})", pair, oracle.approx_dp(epsilon, delta))


def _sampled_gaussian(chance: random.Random) -> Case:
    sigma, rate = log_uniform(chance, 0.3, 10), log_uniform(chance, 1e-6, 0.9)
    pair = DominatingPair.gaussian(sigma).poisson_sampled(rate)
    return Case(f"sampled_gaussian({sigma}, {rate})", pair, oracle.sampled_gaussian(sigma, rate))


def _replaced_gaussian(chance: random.Random) -> Case:
    sigma, rate = log_uniform(chance, 0.3, 10), log_uniform(chance, 1e-5, 0.9)
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    pair = dominating_pair(event, "replace_one")
    return Case(f"replaced_gaussian({sigma}, {rate})", pair, oracle.sampled_gaussian(sigma, rate, replace=True))


def _sampled_laplace(chance: random.Random) -> Case:
    scale, rate = log_uniform(chance, 0.1, 20), log_uniform(chance, 1e-6, 0.9)
    pair = DominatingPair.laplace(scale).poisson_sampled(rate)
    return Case(f"sampled_laplace({scale}, {rate})", pair, oracle.sampled_laplace(scale, rate))


def _mixture(chance: random.Random) -> Case:
    parts = chance.randint(2, 6)
    weights, deviation = random_vector(chance, parts, zeros=False), log_uniform(chance, 0.5, 10)
    shifts = [chance.choice([0.0, chance.uniform(0, 5)]) for _ in range(parts)]
    pair = DominatingPair.gaussian_mixture(weights, shifts, deviation)
    exact = oracle.gaussian_mixture(normalised(weights), shifts, deviation)
    return Case(f"mixture({weights}, {shifts}, {deviation})", pair, exact)


def _without_replacement(chance: random.Random) -> Case:
    size = chance.choice([10, 100, 1000])
    sample, sigma = chance.randint(1, size - 1), log_uniform(chance, 0.4, 10)
    event = dp_event.SampledWithoutReplacementDpEvent(size, sample, dp_event.GaussianDpEvent(sigma))
    pair = dominating_pair(event, "replace_one")
    exact = oracle.sampled_without_replacement(sigma, sample, size)
    return Case(f"without_replacement({sigma}, {sample}, {size})", pair, exact)


def _finite(chance: random.Random) -> Case:
    length = chance.randint(2, 8)
    p, q = random_vector(chance, length), random_vector(chance, length)
    pair = DominatingPair.finite(p, q)
    return Case(f"finite({p}, {q})", pair, oracle.finite(normalised(p), normalised(q)))


def random_vector(chance: random.Random, length: int, *, zeros: bool = True) -> list[float]:
    """Probabilities of very different sizes, some of them 0; their sum is 1 up to rounding."""
    raw = [0.0 if zeros and chance.random() < 0.15 else chance.random() ** 3 + 1e-9 for _ in range(length)]
    raw[0] += 0.1
    total = math.fsum(raw)
    return [value / total for value in raw]


def normalised(vector: list[float]) -> list[Any]:
    """What a vector of doubles stands for: its numbers over their sum, to 60 digits."""
    values = [oracle.real(value) for value in vector]
    return [value / oracle.mp.fsum(values) for value in values]


FAMILIES: dict[str, Callable[[random.Random], Case]] = {
    "gaussian": _gaussian,
    "gaussian_by_cdfs": _gaussian_by_cdfs,
    "laplace": _laplace,
    "discrete_gaussian": _discrete_gaussian,
    "discrete_laplace": _discrete_laplace,
    "randomised_response": _randomised_response,
    "approx_dp": _approx_dp,
    "sampled_gaussian": _sampled_gaussian,
    "replaced_gaussian": _replaced_gaussian,
    "sampled_laplace": _sampled_laplace,
    "mixture": _mixture,
    "without_replacement": _without_replacement,
    "finite": _finite,
}
