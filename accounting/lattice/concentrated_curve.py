"""The privacy profile implied by Rényi divergences ξ + ρα of all orders, as a law for the lattice."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from dpassay.accounting.conversions import formulas
from dpassay.accounting.lattice.laws import Profile
from dpassay.base.arrays import Floats

_MIN_DELTA = 1e-18
"""The curve is treated as constant below this δ."""

_BLOCK = 1024

_TINY = 1e-320
"""More than underflow removes: a positive δ must not become 0, which would mean pure DP."""


@functools.lru_cache(maxsize=64)
def law(rho: Fraction, xi: Fraction) -> Profile:
    """An upper bound on δ(ε): the least over many orders, each of which gives a bound by itself.

    The divergence of order α is at most ξ + ρα in both directions, ρ and ξ at least 0 and not both 0.

    Source: Canonne, Kamath and Steinke (2020).
    """
    slope, offset = formulas.up(rho), formulas.up(xi)
    highest = formulas.epsilon_from_zcdp(slope, _MIN_DELTA, offset)
    highest = min(highest, math.nextafter(offset, math.inf) + 1e-9) if not rho else highest
    orders = np.geomspace(max(1e-4, 1e-2 * highest / (2 * slope)), 1e3 + highest / slope, 400) if rho else None

    def curve(losses: Floats) -> Floats:
        epsilons = np.abs(losses)
        if orders is None:  # pure ξ-DP
            delta = np.where(epsilons >= offset, 0.0, -np.expm1(np.minimum(epsilons - offset, 0.0)))
        else:
            delta = _least_delta(orders, slope, offset, epsilons)
        delta = np.minimum(delta * (1 + 2.0**-49), 1.0)
        mirrored = -np.expm1(np.minimum(losses, 0.0)) + np.exp(np.minimum(losses, 0.0)) * delta
        return np.where(losses >= 0, delta, np.minimum(mirrored * (1 + 2.0**-49), 1.0))

    return Profile(curve, -highest, highest)


def _least_delta(excess: Floats, rho: float, xi: float, epsilons: Floats) -> Floats:
    """The least δ over orders 1 + `excess` at each ε ≥ 0.

    The best order increases with ε, so for a block of ε only the orders between those of its two ends are tried. Every
    order gives a bound.
    """
    orders = 1 + excess
    divergence = (xi + rho * orders) * (1 + 2.0**-50)

    def logs(some: slice, of: Floats) -> Floats:
        return np.asarray(
            formulas.log_delta_from_rdp(orders[some, None], divergence[some, None], of[None, :])  # type: ignore[arg-type]
        )

    out = np.empty(epsilons.size)
    for begin in range(0, epsilons.size, _BLOCK):
        block = epsilons[begin : begin + _BLOCK]
        best = logs(slice(None), np.array([block.min(), block.max()])).argmin(axis=0)
        nearby = slice(max(0, int(best.min()) - 1), int(best.max()) + 2)
        out[begin : begin + _BLOCK] = np.exp(logs(nearby, block).min(axis=0)) + _TINY
    return out
