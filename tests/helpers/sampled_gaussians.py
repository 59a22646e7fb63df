"""One Gaussian release from a part of the data, one record replaced by another, from its laws in 60 digits."""

from __future__ import annotations

import functools
from fractions import Fraction

import oracle
from scipy import optimize

Rate = Fraction | float


def pair(mu: float, rate: Rate = 1) -> oracle.Line:
    """(1 − q)N(0, 1) + qN(μ, 1) against N(0, 1): all other records agree with the new one."""
    return oracle.sampled_gaussian(1 / oracle.mp.mpf(mu), rate)


def delta_of(mu: float, epsilon: float, rate: Rate = 1) -> float:
    return float(pair(mu, rate).delta(epsilon, "remove"))


def epsilon_of(mu: float, delta: float, rate: Rate = 1) -> float:
    return float(pair(mu, rate).epsilon(delta, "remove"))


@functools.cache
def mu_for(epsilon: float, delta: float, rate: Rate = 1) -> float:
    """The μ with this ε at this δ."""
    return float(optimize.brentq(lambda mu: delta_of(mu, epsilon, rate) / delta - 1, 0.001, 40, xtol=1e-13))
