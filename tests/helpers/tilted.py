"""ε of composed sampled Gaussians by a tilted transform: an oracle that shares nothing with the lattice but the law.

Masses of cells, centred on a grid of losses, are multiplied by e^{tℓ}, so that the mean of the sum is at the loss in
question. The rounding of the transform is then relative to masses there, not to the largest mass. Cells are taken as
their centres, which moves ε by the order of the square of their width.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr


def removal_epsilon(noise: float, rate: float, count: int, delta: float, *, cell: float = 4e-5) -> float:
    """ε(δ) of the removal of a record from `count` Poisson-sampled Gaussians, not certified.

    Args:
        noise: σ, at least .5.
        rate: q in (0, 1).
        count: of steps.
        delta: in (0, 1).
        cell: width of the cells of losses.
    """
    low, high, half = np.log1p(-rate), 14.0, 12.0
    places = np.arange(int(np.floor(low / cell)) - 1, int(high / cell))
    edges, losses = (places + 0.5) * cell, places * cell
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.where(edges > low, np.log((np.exp(edges) - (1 - rate)) / rate) * noise**2 + 0.5, -np.inf)
    beyond = (1 - rate) * ndtr(-x / noise) + rate * ndtr(-(x - 1) / noise)
    masses = -np.diff(np.concatenate([[1.0], beyond]))
    size = 1 << int(np.ceil(np.log2(2 * half / cell)))

    def mean(tilt: float) -> float:
        weights = masses * np.exp(tilt * losses)
        return float(count * (weights * losses).sum() / weights.sum())

    target = 3.0
    for _ in range(6):
        tilt = float(brentq(lambda tilt, target=target: mean(tilt) - target, 0, 20))
        weights = masses * np.exp(tilt * losses)
        whole = weights.sum()
        ring = np.zeros(size)
        np.add.at(ring, places % size, weights / whole)
        composed = np.fft.irfft(np.fft.rfft(ring) ** count, size)
        centre = round(target / cell)
        index = np.arange(centre - size // 2, centre + size // 2)
        sums, tilted = index * cell, composed[index % size]
        logs = count * np.log(whole) - tilt * sums

        def excess(epsilon: float, sums=sums, tilted=tilted, logs=logs) -> float:  # type: ignore[no-untyped-def]
            over = sums > epsilon
            value = np.sum(tilted[over] * np.exp(logs[over]) * -np.expm1(epsilon - sums[over]))
            return float(np.log(max(value, 1e-300)) - np.log(delta))

        result = float(brentq(excess, max(target - 2.5, 1e-3), target + 4))
        if abs(result - target) < 0.05:
            return result
        target = result
    raise AssertionError("the tilt does not settle")
