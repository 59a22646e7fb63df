"""The accountants of other libraries, asked the way their documentation does."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import mechanism_calibration
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

Epsilon = Callable[[float, float, int, float], tuple[float, float]]
"""From σ, q, n and δ to a lower and an upper end."""

_OPTIONAL = ("opacus", "autodp")


def missing() -> list[str]:
    """Libraries that are compared where they are installed, and are not."""
    return [name for name in _OPTIONAL if importlib.util.find_spec(name) is None]


def epsilons() -> dict[str, Epsilon]:
    """Every accountant that is installed, by name."""
    found: dict[str, Epsilon] = {"dp_accounting": _OfPld(), "prv_accountant": _prv}
    if "opacus" not in missing():
        found["opacus"] = _opacus
    if "autodp" not in missing():
        found["autodp"] = _autodp
    return found


def event(noise_multiplier: float, rate: float, steps: int) -> dp_accounting.DpEvent:
    """Poisson-sampled Gaussian steps as dp_accounting describes them."""
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    return dp_accounting.SelfComposedDpEvent(one, steps)


class _OfPld:
    """Connect-the-dots at the default interval of 1e-4, both directions, from above.

    The lower end is the optimistic estimate of the same library; it is found once, outside of what is timed.
    """

    def __init__(self) -> None:
        self._lower: dict[tuple[float, float, int, float], float] = {}

    def __call__(self, sigma: float, rate: float, steps: int, delta: float) -> tuple[float, float]:
        key = (sigma, rate, steps, delta)
        if key not in self._lower:
            optimistic = pld.from_gaussian_mechanism(
                sigma, sampling_prob=rate, pessimistic_estimate=False, use_connect_dots=False
            )
            self._lower[key] = float(optimistic.self_compose(steps).get_epsilon_for_delta(delta))
        return self._lower[key], float(_pld(sigma, rate, steps).get_epsilon_for_delta(delta))


def _pld(sigma: float, rate: float, steps: int) -> Any:
    return pld.from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps)


def _prv(sigma: float, rate: float, steps: int, delta: float) -> tuple[float, float]:
    variable = PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=sigma)
    accountant = PRVAccountant(prvs=[variable], eps_error=0.01, delta_error=delta / 1000, max_self_compositions=[steps])
    lower, _, upper = accountant.compute_epsilon(delta, [steps])
    return float(lower), float(upper)


def _opacus(sigma: float, rate: float, steps: int, delta: float) -> tuple[float, float]:
    accountant = importlib.import_module("opacus.accountants").PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    upper = float(accountant.get_epsilon(delta, eps_error=0.01, delta_error=delta / 1000))
    return upper - 0.02, upper


def _autodp(sigma: float, rate: float, steps: int, delta: float) -> tuple[float, float]:
    """By Rényi divergences, which is what autodp composes sampled mechanisms with; no lower end."""
    mechanism_zoo = importlib.import_module("autodp.mechanism_zoo")
    transformer_zoo = importlib.import_module("autodp.transformer_zoo")
    sampled = transformer_zoo.AmplificationBySampling(PoissonSampling=True)
    one = sampled(mechanism_zoo.GaussianMechanism(sigma), rate, improved_bound_flag=True)
    return 0.0, float(transformer_zoo.Composition()([one], [steps]).get_approxDP(delta))


def calibrated(epsilon: float, delta: float, rate: float, steps: int, tolerance: float) -> float:
    """The noise multiplier by dp_accounting's search in [0.5, 5] with its PLD accountant."""
    return float(
        mechanism_calibration.calibrate_dp_mechanism(
            PLDAccountant,
            lambda noise: event(noise, rate, steps),
            epsilon,
            delta,
            mechanism_calibration.ExplicitBracketInterval(0.5, 5.0),
            tol=tolerance,
        )
    )


def trade_off(sigma: float, rate: float, steps: int, alphas: NDArray[np.float64]) -> NDArray[np.float64]:
    """A lower bound on β at each α: the best line of as many ε as there are α, in one call of the library.

    Its δ(ε) is the larger of both directions, so the curve is symmetric.
    """
    distribution = _pld(sigma, rate, steps)
    epsilons = np.linspace(0.0, float(distribution.get_epsilon_for_delta(1e-9)), alphas.size)
    deltas = np.asarray(distribution.get_delta_for_epsilon(epsilons))
    grown = np.exp(epsilons)
    first = (1 - deltas) - np.outer(alphas, grown)
    second = (1 - deltas - alphas[:, None]) / grown
    return np.asarray(np.maximum(np.maximum(first, second).max(axis=1), 0.0))


def mixture_epsilon(
    weights: NDArray[np.float64], sensitivities: NDArray[Any], sigma: float, steps: int, delta: float
) -> float:
    """ε of a mixture of Gaussians, both directions, at the default interval."""
    one = pld.from_mixture_gaussian_mechanism(sigma, sensitivities.astype(float).tolist(), weights.tolist())
    return float(one.self_compose(steps).get_epsilon_for_delta(delta))
