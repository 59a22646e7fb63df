"""The e-variable of one round: a bet on one run on D and one on D′ against every (ε, δ)-DP mechanism.

A run has an event with probability p on D and q on D′. Under (ε, δ)-DP the pair (p, q) lies in the polygon Θ of all
pairs with q ≤ e^ε·p + δ, p ≤ e^ε·q + δ, and the same for 1 − p and 1 − q. Let (a, b) be estimates of p and q. The bet
multiplies the wealth by the likelihood of (a, b) over that of the nearest point of Θ, the one with the smallest
Kullback–Leibler divergence from (a, b). Its mean is at most 1 for every pair of Θ, and no other bet has a larger mean
logarithm if (a, b) is the truth. docs/proofs/sequential.md has the proofs.

Source: Turner, Ly and Grünwald, "Generic E-variables for Exact Sequential k-Sample Tests that Allow for Optional
Stopping" (2024), for a convex null hypothesis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpassay.base.arrays import Bools, Floats

_STEPS = 60  # of Newton's method, at most
_CLOSE = 4e-16  # relative


class LogBets(NamedTuple):
    """Logarithms of the factors by which the wealth changes; the factors of the two runs multiply.

    Attributes:
        hit: if the event happened, shape (..., 2, G): on D, on D′.
        miss: if it did not.
    """

    hit: Floats
    miss: Floats


def corner(grown: Floats, delta: float) -> Floats:
    """The smaller rate of the pair (t, 1 − t) that is farthest from equality: (1 − δ)/(1 + e^ε), for every e^ε."""
    return np.asarray((1 - delta) / (1 + grown))


def log_bets(on_d: Floats, on_d_prime: Floats, grown: Floats, delta: float) -> LogBets:
    """The bets at estimated rates in (0, 1), shape (...), against every ε of a grid, given as e^ε of shape (G,).

    Their factors have a mean of at most 1 under (ε, δ)-DP however exact the projection is: what it misses, at most, is
    taken off.
    """
    a, b = np.asarray(on_d, dtype=np.float64)[..., None], np.asarray(on_d_prime, dtype=np.float64)[..., None]
    low, high = np.minimum(a, b), np.maximum(a, b)
    p, q = projected(low, high, grown, delta)
    hits = np.log(low / p), np.log(high / q)
    misses = np.log1p(-low) - np.log1p(-p), np.log1p(-high) - np.log1p(-q)
    excess = _excess(low, high, p, q, grown, delta) / 2  # half of it on either side
    swapped = (a > b)[..., None, :]
    return LogBets(*(_on_both(*pair, swapped) - excess[..., None, :] for pair in (hits, misses)))


def _on_both(low: Floats, high: Floats, swapped: Bools) -> Floats:
    pair = np.stack([low, high], axis=-2)
    return np.where(swapped, pair[..., ::-1, :], pair)


def projected(low: Floats, high: Floats, grown: Floats, delta: float) -> tuple[Floats, Floats]:
    """The point of Θ that is nearest to a pair with low ≤ high.

    It is the pair itself, or lies on the edge q = e^ε·p + δ, on the edge 1 − p = e^ε·(1 − q) + δ, or in their corner.
    The second edge is the first one for the complement of the event.
    """
    t = corner(grown, delta)
    outside = (high > grown * low + delta) | (1 - low > grown * (1 - high) + delta)
    on_first = outside & (t - low + grown * (1 - t - high) > 0)  # the divergence grows towards the corner
    on_second = outside & ~on_first & (t - (1 - high) + grown * (low - t) > 0)
    p, q = np.where(outside, t, low), np.where(outside, 1 - t, high)
    indices = np.nonzero(on_first | on_second)
    if indices[0].size:
        turned = on_second[indices]
        shape = on_first.shape
        first, second = (np.broadcast_to(side, shape)[indices] for side in (low, high))
        x, y = np.where(turned, 1 - second, first), np.where(turned, 1 - first, second)
        growth = np.broadcast_to(grown, shape)[indices]
        rate = _on_edge(x, y, growth, delta)
        across = growth * rate + delta
        p[indices], q[indices] = np.where(turned, 1 - across, rate), np.where(turned, 1 - rate, across)
    return p, q


def _on_edge(x: Floats, y: Floats, c: Floats, delta: float) -> Floats:
    """The p at which the divergence of (x, y) from (p, cp + δ) is smallest; it lies between x and (y − δ)/c."""
    total, linear = x + y, (1 + y) + c * (1 + x)
    p = 2 * total / (linear + np.sqrt(np.maximum(linear**2 - 8 * c * total, 0.0)))  # exact for δ = 0
    left, right = x, np.maximum((y - delta) / c, x)
    p = np.clip(p, left, right)
    if delta == 0:
        return p
    for _ in range(_STEPS):
        q = c * p + delta
        slope = (p - x) / (p * (1 - p)) + c * (q - y) / (q * (1 - q))
        curve = x / p**2 + (1 - x) / (1 - p) ** 2 + c**2 * (y / q**2 + (1 - y) / (1 - q) ** 2)
        left, right = np.where(slope < 0, p, left), np.where(slope < 0, right, p)
        better = p - slope / curve
        better = np.where((better < left) | (better > right), (left + right) / 2, better)
        if (np.abs(better - p) <= _CLOSE * p).all():
            break
        p = better
    return p


def _excess(low: Floats, high: Floats, p: Floats, q: Floats, grown: Floats, delta: float) -> Floats:
    """A bound on the logarithm of the mean of the bet over all of Θ; 0 for an exact projection.

    The logarithm of the mean is concave in the rates and 0 at (p, q), so it is at most its tangent there, which is
    largest at a corner of Θ. As p ≥ low and q ≤ high, it is one of the three with the larger rate on the second side.
    """
    t = corner(grown, delta)
    down, up = (low - p) / (p * (1 - p)), (high - q) / (q * (1 - q))
    tangents = [
        down * (first - p) + up * (second - q) for first, second in ((0.0, delta), (t, 1 - t), (1 - delta, 1.0))
    ]
    return np.asarray(np.maximum(np.max(tangents, axis=0), 0.0))
