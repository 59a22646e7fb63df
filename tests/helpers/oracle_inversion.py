"""Many compositions of one Gaussian mixture to 10 digits, by inverting a Laplace transform along a vertical line.

With M(s) = E_P[(p/q)^s] of one run, n runs have δ(ε) = (1/2πi) ∫ M(s)^n e^{−sε}/(s(s + 1)) ds over Re s = c, any c > 0:
1/(s(s + 1)) is the transform of (1 − e^{−u})⁺. M is an integral over the line, analytic and fast decaying, and so is
the outer integrand, so the trapezoid rule converges faster than any power of its step in both. No lattice of losses, no
rounding of losses, no truncation of their law: what remains is checked by halving the steps.

Accuracy: M(s)^n keeps n units in the last place of the 64-bit mantissa relative to its peak M(c)^n, which at the saddle
point c is of the size of the answer. `tests/accounting/test_lattice_oracle.py` holds the relative error to 1e-10;
what is left out of the laws has e^{−33}/n of the peak (more would let outcomes of no weight dominate M(c)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

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
    size, peak = deviation / (16 * fineness), _Long(-50)
    for _ in range(3):
        reach = math.sqrt(2 * (33 + math.log(count) - min(0.0, float(peak))))
        x, loss, base = _sample(p, q, deviation, reach, size)

        def log_chernoff(c: float, size: Any = x[1] - x[0], loss: Any = loss, base: Any = base) -> Any:
            """log(M(c)^n e^{−cε}), above which log δ(ε) never is."""
            logs = base + _Long(c) * loss
            top = logs.max()
            return count * (top + np.log(np.exp(logs - top).sum() * size)) - _Long(c) * _Long(epsilon)

        def exponent(log_c: float, bound: Any = log_chernoff) -> float:
            return float(bound(math.exp(log_c))) - log_c - math.log1p(math.exp(log_c))

        c = math.exp(minimize_scalar(exponent, bounds=(-14, 9), method="bounded").x)
        peak = _Long(exponent(math.log(c)))
    # Left of the saddle point the transform decays sooner where outcomes far out dominate M(c); 7 costs three digits.
    c = next(part * c for part in (0.4, 0.55, 0.7, 0.85, 1.0) if exponent(math.log(part * c)) <= float(peak) + 7)
    peak = _Long(exponent(math.log(c)))
    steepest = float(np.abs(np.diff(loss)).max() / (x[1] - x[0]))
    # The trapezoid rule adds δ(ε + kW)e^{ckW} for every k ≠ 0. Left of ε it is at most e^{−cW}, right of it Chernoff's
    # bound at mc; W is so wide that both are e^{−45} of the peak.
    right = min(float(log_chernoff(m * c) - peak + 45) / ((m - 1) * c) for m in (1.2, 1.5, 2, 3))
    step = 2 * np.pi / (fineness * max(right, float(45 - peak) / c))
    total, done = _Long(0), 0
    while done < 8192:
        nodes = (np.arange(done, done + _BLOCK)).astype(_Long) * _Long(step)
        while steepest * float(nodes[-1]) * float(x[1] - x[0]) > 0.7 / fineness:  # a tenth of a turn between points
            x, loss, base = _sample(p, q, deviation, reach, float(x[1] - x[0]) / 2)
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


def _sample(p: Mixture, q: Mixture, deviation: float, reach: float, step: float) -> tuple[Any, Any, Any]:
    """Points around all means; log p/q and log p there. Ratios to N(0, σ²) are taken of each, so that losses far below
    1 keep their digits. From `reach` deviations on, outcomes are left out, smoothly: a sharp end would cost the
    trapezoid rule its accuracy, and the law its independence of the step."""
    means = [float(mean) for mean in (*p[1], *q[1])]
    scale, edge = _Long(deviation), deviation / 4
    low, high = _Long(min(means)) - _Long(reach * deviation), _Long(max(means)) + _Long(reach * deviation)
    x = np.arange(low - 12 * edge, high + 12 * edge, _Long(step))
    log_p, log_q = _log_ratio(p, scale, x), _log_ratio(q, scale, x)
    kept = log_ndtr(((x - low) / edge).astype(float)) + log_ndtr(((high - x) / edge).astype(float))
    return x, log_p - log_q, log_p - (x / scale) ** 2 / 2 - np.log(scale * np.sqrt(2 * _PI)) + kept


def _log_ratio(mixture: Mixture, scale: Any, x: Any) -> Any:
    parts = [
        np.log(_Long(weight)) + _Long(mean) * (x - _Long(mean) / 2) / scale**2
        for weight, mean in zip(*mixture, strict=True)
        if weight
    ]
    return np.logaddexp.reduce(parts)
