"""ε of composed sampled Gaussians by a tilted transform: an oracle that shares nothing with the lattice but the law.

Masses of cells, centred on a grid of losses, are multiplied by e^{tℓ}, so that the mean of the sum is at the loss in
question. The rounding of the transform is then relative to masses there, not to the largest mass. Cells are taken as
their centres, which moves ε by the order of the square of their width.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

_HALF = 12.0
"""Sums of losses so far from the one in question have no mass that counts."""


def removal_epsilon(noise: float, rate: float, count: int, delta: float, *, cell: float = 4e-5) -> float:
    """ε(δ) of the removal of a record from `count` Poisson-sampled Gaussians, not certified.

    Args:
        noise: σ, at least .5.
        rate: q in (0, 1).
        count: of steps.
        delta: in (0, 1).
        cell: width of the cells of losses.
    """
    low, high = np.log1p(-rate), 14.0
    places = np.arange(int(np.floor(low / cell)) - 1, int(high / cell))
    edges = (places + 0.5) * cell
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.where(edges > low, np.log((np.exp(edges) - (1 - rate)) / rate) * noise**2 + 0.5, -np.inf)
    beyond = (1 - rate) * ndtr(-x / noise) + rate * ndtr(-(x - 1) / noise)
    masses = -np.diff(np.concatenate([[1.0], beyond]))
    target = 3.0
    for _ in range(6):
        result = _near(target, places, masses, count, delta, cell)
        if abs(result - target) < 0.05:
            return result
        target = result
    raise AssertionError("the tilt does not settle")


def _near(
    target: float, places: NDArray[np.int64], masses: NDArray[np.float64], count: int, delta: float, cell: float
) -> float:
    """ε from masses that are tilted so that the mean of the sum is `target`."""
    losses = places * cell

    def off(tilt: float) -> float:
        weights = masses * np.exp(tilt * losses)
        return float(count * np.sum(weights * losses) / np.sum(weights)) - target

    tilt = float(brentq(off, 0.0, 20.0))
    weights = masses * np.exp(tilt * losses)
    whole = float(np.sum(weights))
    size = 1 << math.ceil(math.log2(2 * _HALF / cell))
    ring = np.zeros(size)
    np.add.at(ring, places % size, weights / whole)
    composed = np.fft.irfft(np.fft.rfft(ring) ** count, size)
    index: NDArray[np.int64] = np.arange(size) + round(target / cell) - size // 2
    sums, tilted = index * cell, composed[index % size]
    logs = count * math.log(whole) - tilt * sums

    def excess(epsilon: float) -> float:
        over = sums > epsilon
        value = float(np.sum(tilted[over] * np.exp(logs[over]) * -np.expm1(epsilon - sums[over])))
        return math.log(max(value, 1e-300)) - math.log(delta)

    return float(brentq(excess, max(target - 2.5, 1e-3), target + 4.0))
