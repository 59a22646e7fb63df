"""The privacy profile that Rényi divergences ξ + ρα of all orders imply, as a law for the lattice."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from cupel.accounting.conversions import formulas
from cupel.accounting.lattice.law_transforms import Profile
from cupel.accounting.lattice.laws import Floats

_LEAST = 1e-18
"""The δ below which the curve counts as constant."""

_BLOCK = 1024

_TINY = 1e-320
"""More than what underflow takes: a δ above 0 must not read as 0, which would say pure DP."""


@functools.lru_cache(maxsize=64)
def law(rho: Fraction, xi: Fraction) -> Profile:
    """δ(ε) at the best of many orders, each of which is a bound by itself (Canonne, Kamath and Steinke 2020).

    Args:
        rho, xi: at least 0, not both 0; the divergence of order α is at most ξ + ρα in both directions.
    """
    slope, offset = formulas.up(rho), formulas.up(xi)
    highest = formulas.epsilon_from_zcdp(slope, _LEAST, offset)
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

    The best order grows with ε, so for a block of them only the orders from the best of one end to that of the other
    are tried. Every order gives a bound.
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
