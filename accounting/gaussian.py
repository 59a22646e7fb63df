"""Gaussian releases of vectors: the noise they need, their joint cost, and their cost on a sample.

A release of sensitivity Δ with noise of standard deviation σ is μ-GDP with μ = Δ/σ, exactly; the *noise multiplier* is
σ/Δ = 1/μ. Several releases of the same data are one release of the concatenated vector, so μ² adds up exactly. All
results are conservative: noise is rounded up, and the δ or ε it has to meet includes its float error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.conversions import formulas
from dpassay.base import validate
from dpassay.base.arrays import Floats

_UNIT = 2.0**-53

# Noise for a target


def classical_noise_multiplier(epsilon: float, delta: float) -> float:
    """σ/Δ = √(2 ln(1.25/δ))/ε, rounded up, if it gives (ε, δ)-DP.

    Its authors prove it for ε below 1. It holds for every ε up to `classical_limit` and for none above.

    Args:
        epsilon: above 0.
        delta: in (0, 1).

    Raises:
        ValueError: if ε is above the limit; `analytic_noise_multiplier` has no limit and needs less noise.

    Source: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), Theorem A.1.
    """
    validate.positive(epsilon=epsilon)
    validate.open_probability(delta=delta)
    multiplier = _classical(epsilon, delta)
    if not _suffices(multiplier, epsilon, delta):
        raise ValueError(
            f"the classical σ gives (ε, δ)-DP only up to ε = {classical_limit(delta):.6f} at δ = {delta!r}, not at "
            f"{epsilon!r}; use analytic_noise_multiplier"
        )
    return multiplier


def classical_limit(delta: float) -> float:
    """The largest ε at which the classical σ gives (ε, δ)-DP for a δ in (0, 1), rounded down.

    With c = √(2 ln(1.25/δ)) and a = ε/(2c), its δ is Φ(a − c) − e^{2ac}Φ(−a − c). The derivative in a is
    2e^{2ac}(φ(a + c) − cΦ(−a − c)), which is positive because Φ(−x) < φ(x)/x. So δ increases with ε from 0 to 1, and
    the classical σ suffices up to one ε and for none above.
    """
    validate.open_probability(delta=delta)
    low, high = 0.0, 1.0
    while _suffices(_classical(high, delta), high, delta):
        low, high = high, 2 * high
    while high - low > 1e-14 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _suffices(_classical(middle, delta), middle, delta) else (low, middle)
    return low


def _classical(epsilon: float, delta: float) -> float:
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon * (1 + 32 * _UNIT)


def _suffices(multiplier: float, epsilon: float, delta: float) -> bool:
    return formulas.delta_from_gdp(math.nextafter(1 / multiplier, math.inf), epsilon) <= delta


def analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """The least σ/Δ that gives (ε, δ)-DP, ε ≥ 0 and δ in (0, 1), rounded up.

    Source: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8.
    """
    return float(analytic_noise_multipliers(epsilon, delta))


def analytic_noise_multipliers(epsilons: ArrayLike, deltas: ArrayLike) -> Floats:
    """`analytic_noise_multiplier` for arrays of ε and δ that broadcast together."""
    return np.nextafter(1 / largest_mus(epsilons, deltas), math.inf)


def largest_mus(epsilons: ArrayLike, deltas: ArrayLike) -> Floats:
    """The largest μ, rounded down, such that μ-GDP implies (ε, δ)-DP, for ε ≥ 0 and δ in (0, 1) that broadcast
    together.

    δ(ε) increases with μ, which is bisected to neighbouring floats. The δ(ε) of the returned μ is certified to be at
    most δ.
    """
    epsilon, delta = np.broadcast_arrays(np.asarray(epsilons, np.float64), np.asarray(deltas, np.float64))
    if not (np.isfinite(epsilon).all() and (epsilon >= 0).all()):
        raise ValueError("epsilons must be finite and at least 0")
    if not ((delta > 0) & (delta < 1)).all():
        raise ValueError("deltas must be strictly between 0 and 1")
    high = np.ones(epsilon.shape)
    while (small := formulas.deltas_from_gdp(high, epsilon) <= delta).any():
        high = np.where(small, 2 * high, high)
    low = high / 2
    while (large := formulas.deltas_from_gdp(low, epsilon) > delta).any():
        high, low = np.where(large, low, high), np.where(large, low / 2, low)
        if (low < 1e-300).any():
            raise ValueError("no μ above 1e-300 meets the δ; give a larger δ")
    for _ in range(54):  # low ≥ high/2, so this reaches neighbouring floats
        middle = low + (high - low) / 2
        meets = formulas.deltas_from_gdp(middle, epsilon) <= delta
        low, high = np.where(meets, middle, low), np.where(meets, high, middle)
    return low


# Sensitivities and joint releases


def mean_sensitivity(clip: float, records: int, adjacency: Adjacency | str) -> Fraction:
    """The exact sensitivity of a mean of vectors, each of norm at most `clip`, with a public divisor.

    The divisor does not depend on the data. Adding or removing a record moves the mean by C/n, and exchanging one by
    2C/n.

    Args:
        clip: C above 0, the largest L2 norm of a record's vector.
        records: n ≥ 1, the public divisor.
        adjacency: add_remove, zero_out (a null record has the vector 0) or replace_one.
    """
    validate.positive(clip=clip)
    validate.integer(minimum=1, records=records)
    return sum_sensitivity(adjacency) * Fraction(clip) / records


def sum_sensitivity(adjacency: Adjacency | str) -> int:
    """The largest change of a sum to which each record adds a vector of length at most 1: 1, or 2 under replace_one."""
    validate.one_of((Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT), adjacency=adjacency)
    return 2 if adjacency == Adjacency.REPLACE_ONE else 1


def histogram_sensitivity(adjacency: Adjacency | str) -> float:
    """L2 sensitivity of a histogram in which each record counts in one bin: 1, or √2 (rounded up) under replace_one.

    An exchanged record may leave one bin and enter another.
    """
    return 1.0 if sum_sensitivity(adjacency) == 1 else math.nextafter(math.sqrt(2.0), math.inf)


def joint_mu(clips: Sequence[float], deviations: Sequence[float], *, records: int, adjacency: Adjacency | str) -> float:
    """μ of the means of several layers, released together: √(Σ_ℓ (Δ_ℓ/σ_ℓ)²), rounded up.

    One record moves all layers at once, and the scaled layers are one vector of at most this norm. It is attained by a
    record with norm C_ℓ in every layer, exchanged for its negative.

    Args:
        clips: C_ℓ above 0, the largest L2 norm of a record's vector in each layer.
        deviations: σ_ℓ above 0, the standard deviation of the noise on each coordinate of the mean of each layer.
        records: n ≥ 1, the public divisor of the means.
        adjacency: add_remove, zero_out or replace_one; see `mean_sensitivity`.
    """
    if not clips or len(clips) != len(deviations):
        raise ValueError(f"a joint release needs as many deviations as clips, not {len(deviations)} and {len(clips)}")
    total = Fraction(0)
    for clip, deviation in zip(clips, deviations, strict=True):
        total += (mean_sensitivity(clip, records, adjacency) / Fraction(validate.positive(deviation=deviation))) ** 2
    # √(a/b) = √(ab)/b in integers of 128 bits, since squares leave float64 before roots do.
    product = total.numerator * total.denominator
    shift = max(0, 128 - product.bit_length() // 2)
    root = math.isqrt(product << 2 * shift)
    root += root * root < product << 2 * shift
    return formulas.up(Fraction(root, total.denominator << shift))


def joint_noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """The common σ_ℓ/Δ_ℓ of several joint releases that makes them (ε, δ)-DP together, rounded up: √L/μ."""
    validate.integer(minimum=1, releases=releases)
    return math.sqrt(releases) * analytic_noise_multiplier(epsilon, delta) * (1 + 4 * _UNIT)


# A release from a sample without replacement


def sampled_delta(mu: float, epsilon: float, *, sample_size: int, records: int) -> float:
    """δ(ε) under replace_one of one Gaussian release from m of n records: q δ_μ(log(1 + (e^ε − 1)/q)), rounded up.

    It is attained if all other records agree with the new one. Which records are in the sample must stay secret. Two
    releases from one sample are one release with their joint μ; two from different samples compose.

    Args:
        mu: of the release under replace_one of a record in the sample, at least 0.
        epsilon: at least 0.
        sample_size: m, from 0 to n, a fixed number.
        records: n ≥ 1.

    Source: Balle, Barthe and Gaboardi, "Privacy Amplification by Subsampling" (2018), Theorem 9.
    """
    validate.non_negative(mu=mu)
    validate.non_negative(epsilon=epsilon)
    rate = _rate(sample_size, records)
    if mu == 0 or rate == 0:
        return 0.0
    inner = formulas.delta_from_gdp(mu, _inner(epsilon, rate))
    return min(rate * inner * (1 + 2 * _UNIT) + 1e-320, 1.0)  # an underflow to 0 would mean pure DP


def sampled_epsilon(mu: float, delta: float, *, sample_size: int, records: int) -> float:
    """The least ε at which `sampled_delta` is at most δ, rounded up: log(1 + q(e^{ε₀} − 1)) with ε₀ that of δ/q.

    Args and source as for `sampled_delta`, with δ in (0, 1).
    """
    validate.non_negative(mu=mu)
    validate.open_probability(delta=delta)
    rate = _rate(sample_size, records)
    inner = delta / rate * (1 - 2 * _UNIT) if rate else 1.0
    if inner >= 1:
        return 0.0
    return _outer(formulas.epsilon_from_gdp(mu, inner), rate)


def sampled_mu(epsilon: float, delta: float, *, sample_size: int, records: int) -> float:
    """The largest μ, rounded down, whose release from a sample is (ε, δ)-DP under replace_one; inf if every μ is.

    Args and source as for `sampled_delta`, with δ in (0, 1).
    """
    validate.non_negative(epsilon=epsilon)
    validate.open_probability(delta=delta)
    rate = _rate(sample_size, records)
    inner = delta / rate * (1 - 2 * _UNIT) if rate else 1.0
    return math.inf if inner >= 1 else float(largest_mus(_inner(epsilon, rate), inner))


def _rate(sample_size: int, records: int) -> float:
    """q = m/n, rounded up. δ rises with q: h − (x − 1)h′ ≥ 0 for a curve h that decreases in x = 1 + (e^ε − 1)/q."""
    validate.integer(minimum=1, records=records)
    validate.integer(sample_size=sample_size)
    if sample_size > records:
        raise ValueError(f"sample_size must be at most records ({records}), not {sample_size}")
    return formulas.up(Fraction(sample_size, records))


def _inner(epsilon: float, rate: float) -> float:
    """log(1 + (e^ε − 1)/q), rounded down."""
    if epsilon <= 600:  # log1p does not increase a relative error
        return math.log1p(math.expm1(epsilon) / rate) * (1 - 32 * _UNIT)
    return (epsilon - math.log(rate)) * (1 - 32 * _UNIT)


def _outer(epsilon: float, rate: float) -> float:
    """log(1 + q(e^ε − 1)), rounded up."""
    if epsilon <= 600:
        return math.log1p(rate * math.expm1(epsilon)) * (1 + 32 * _UNIT)
    return epsilon + math.log(rate) + 1e-100 + 32 * _UNIT * (epsilon - math.log(rate))
