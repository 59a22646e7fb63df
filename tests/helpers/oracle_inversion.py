"""Many compositions of one Gaussian mixture to 12 digits, by inverting a Laplace transform along a vertical line.

With M(s) = E_P[(p/q)^s] of one run, n runs have δ(ε) = (1/2πi) ∫ M(s)^n e^{−sε}/(s(s + 1)) ds over Re s = c, any c > 0:
1/(s(s + 1)) is the transform of (1 − e^{−u})⁺. M is an integral over the line, analytic and fast decaying, and so is
the outer integrand, so the trapezoid rule converges faster than any power of its step in both. No lattice of losses, no
rounding of losses, no truncation of their law: what remains is checked by halving the steps.

Accuracy: M(s)^n keeps n units in the last place of the 64-bit mantissa relative to its peak M(c)^n, which at the saddle
point c is of the size of the answer. `tests/accounting/test_lattice_oracle.py` holds the relative error to 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

Mixture = tuple[Sequence[Any], Sequence[Any]]
"""Weights and means."""

_Long = np.longdouble
_PI = 4 * np.arctan(_Long(1))
_BLOCK = 16
_NEGLIGIBLE = 1e-22


def sampled_gaussian(rate: float, *, replace: bool = False) -> tuple[Mixture, Mixture]:
    """P and Q of a Poisson-sampled Gaussian of sensitivity 1; the rate is a double at its exact value."""
    weights = (1 - _Long(rate), _Long(rate))
    return (weights, (0, 1)), ((weights, (0, -1)) if replace else ((1,), (0,)))


def composed_delta(
    first: Mixture, second: Mixture, deviation: float, count: int, epsilon: float, direction: str, fineness: int = 1
) -> float:
    """δ(ε) of `count` runs of two mixtures of Gaussians with one standard deviation.

    Args:
        first: P.
        second: Q; ``add`` exchanges the two.
        deviation: the standard deviation of every component.
        count: the number of runs; below about 20 the transform decays too slowly.
        epsilon: any real number.
        direction: ``remove`` or ``add``.
        fineness: divides both steps; 2 tells how far 1 is off.

    Raises:
        ArithmeticError: where the transform has not decayed after 8192 nodes.
    """
    p, q = (first, second) if direction == "remove" else (second, first)
    x, loss, base = _sample(p, q, deviation, deviation / (16 * fineness))
    steepest = float(np.abs(np.diff(loss)).max() / (x[1] - x[0]))

    def exponent(c: float) -> Any:
        """log(M(c)^n e^{−cε}/(c(c + 1)))."""
        logs = base + _Long(c) * loss
        top = logs.max()
        moment = top + np.log(np.exp(logs - top).sum() * (x[1] - x[0]))
        return count * moment - _Long(c) * _Long(epsilon) - np.log(_Long(c) * (1 + _Long(c)))

    search = minimize_scalar(lambda log_c: float(exponent(math.exp(log_c))), bounds=(-4, 7), method="bounded")
    c = math.exp(search.x)
    peak = exponent(c)
    # The trapezoid rule adds δ(ε + kW)e^{ckW} for every k ≠ 0: next to nothing for W as wide as this.
    step = 2 * np.pi / (fineness * (80 / c + 40))
    total, done = _Long(0), 0
    while done < 8192:
        nodes = (np.arange(done, done + _BLOCK)).astype(_Long) * _Long(step)
        while steepest * float(nodes[-1]) * float(x[1] - x[0]) > 0.7 / fineness:  # a tenth of a turn between points
            x, loss, base = _sample(p, q, deviation, float(x[1] - x[0]) / 2)
        logs = base + _Long(c) * loss
        inside = logs > logs.max() - 50
        mass = np.exp(logs[inside]) * (x[1] - x[0])
        angles = nodes[:, None] * loss[inside]
        moments = (np.cos(angles) * mass).sum(axis=1) + 1j * (np.sin(angles) * mass).sum(axis=1)
        s = _Long(c) + 1j * nodes
        values = np.exp(count * np.log(moments) - s * _Long(epsilon) - np.log(s) - np.log(1 + s) - peak)
        total += values.real.sum() - (values[0].real / 2 if not done else 0)
        done += _BLOCK
        if np.abs(values).max() < _NEGLIGIBLE:
            return float(total * _Long(step) / _PI * np.exp(peak))
    raise ArithmeticError("the transform decays too slowly: too few runs, or too little noise")


def _sample(p: Mixture, q: Mixture, deviation: float, step: float) -> tuple[Any, Any, Any]:
    """Points 30 deviations around all means; log p/q and log p there. Ratios to N(0, σ²) are taken of each, so that
    losses far below 1 keep their digits."""
    means = [float(mean) for mean in (*p[1], *q[1])]
    x = np.arange(_Long(min(means) - 30 * deviation), _Long(max(means) + 30 * deviation), _Long(step))
    scale = _Long(deviation)
    log_p, log_q = _log_ratio(p, scale, x), _log_ratio(q, scale, x)
    return x, log_p - log_q, log_p - (x / scale) ** 2 / 2 - np.log(scale * np.sqrt(2 * _PI))


def _log_ratio(mixture: Mixture, scale: Any, x: Any) -> Any:
    parts = [
        np.log(_Long(weight)) + _Long(mean) * (x - _Long(mean) / 2) / scale**2
        for weight, mean in zip(*mixture, strict=True)
        if weight
    ]
    return np.logaddexp.reduce(parts)
