"""The accountants of other libraries, asked the way their documentation does."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import dp_accounting
import numpy as np
from dp_accounting import DpEvent, dp_event, mechanism_calibration
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import NDArray
from prv_accountant import PRVAccountant
from prv_accountant import privacy_random_variables as variables


class NotOffered(Exception):
    """The library has no accountant for an event."""


@dataclass(frozen=True)
class Peer:
    """An accountant that answers from above.

    Attributes:
        epsilon: an event, δ, the adjacency and how fine the lattice is to an upper bound on ε.
        coarsest: an error of ε to the coarsest lattice that is worth a try.
        package: the distribution that it comes in.
    """

    epsilon: Callable[[DpEvent, float, str, float], float]
    coarsest: Callable[[float], float]
    package: str


def _pld_epsilon(asked: DpEvent, delta: float, adjacency: str, interval: float) -> float:
    """Connect-the-dots, the worse of both directions; `interval` is the distance of lattice points."""
    relation = {"add_remove": "ADD_OR_REMOVE_ONE", "replace_one": "REPLACE_ONE"}[adjacency]
    accountant = PLDAccountant(dp_accounting.NeighboringRelation[relation], interval)
    try:
        accountant.compose(asked)
    except dp_accounting.UnsupportedEventError as error:
        raise NotOffered from error
    return float(accountant.get_epsilon(delta))


def _prv_epsilon(asked: DpEvent, delta: float, adjacency: str, error: float) -> float:
    """Removal only; `error` is the ε error that is added to the answer, and an error of δ in proportion."""
    parts = _parts(asked)
    counts = [count for _, count in parts]
    less = delta * min(1e-3, error / 10)
    accountant = PRVAccountant([_variable(part) for part, _ in parts], error, less, counts)
    return float(accountant.compute_epsilon(delta, counts)[2])


def _opacus_epsilon(asked: DpEvent, delta: float, adjacency: str, error: float) -> float:
    """Removal only, sampled Gaussians only; `error` as for prv_accountant."""
    accountant = importlib.import_module("opacus.accountants").PRVAccountant()
    accountant.history = [(*_sampled_gaussian(part), count) for part, count in _parts(asked)]
    return float(accountant.get_epsilon(delta, eps_error=error, delta_error=delta * min(1e-3, error / 10)))


def _autodp_epsilon(asked: DpEvent, delta: float, adjacency: str, error: float) -> float:
    """By Rényi divergences, which is what autodp composes sampled mechanisms with; it has no lattice to refine."""
    mechanisms = importlib.import_module("autodp.mechanism_zoo")
    transformers = importlib.import_module("autodp.transformer_zoo")
    sampled = transformers.AmplificationBySampling(PoissonSampling=True)
    parts = [(*_sampled_gaussian(part), count) for part, count in _parts(asked)]
    each = [sampled(mechanisms.GaussianMechanism(noise), rate, improved_bound_flag=True) for noise, rate, _ in parts]
    return float(transformers.Composition()(each, [count for *_, count in parts]).get_approxDP(delta))


_ALL = {
    "dp_accounting": Peer(_pld_epsilon, lambda error: 0.1, "dp-accounting"),
    "prv_accountant": Peer(_prv_epsilon, lambda error: error, "prv-accountant"),
    "opacus": Peer(_opacus_epsilon, lambda error: error, "opacus"),
    "autodp": Peer(_autodp_epsilon, lambda error: 0.0, "autodp"),
}
PEERS = {name: peer for name, peer in _ALL.items() if importlib.util.find_spec(name) is not None}
"""Those that are installed, by the name that they are imported under."""


def missing() -> list[str]:
    """Libraries that are compared where they are installed, and are not."""
    return [name for name in _ALL if name not in PEERS]


def _parts(asked: DpEvent, count: int = 1) -> list[tuple[DpEvent, int]]:
    """A composition as a list of what is composed, with counts."""
    if isinstance(asked, dp_event.SelfComposedDpEvent):
        return _parts(asked.event, count * asked.count)
    if isinstance(asked, dp_event.ComposedDpEvent):
        return [part for each in asked.events for part in _parts(each, count)]
    return [(asked, count)]


def _sampled_gaussian(asked: DpEvent) -> tuple[float, float]:
    if isinstance(asked, dp_event.GaussianDpEvent):
        return asked.noise_multiplier, 1.0
    if isinstance(asked, dp_event.PoissonSampledDpEvent) and isinstance(asked.event, dp_event.GaussianDpEvent):
        return asked.event.noise_multiplier, asked.sampling_probability
    raise NotOffered


def _variable(asked: DpEvent) -> variables.PrivacyRandomVariable:
    if isinstance(asked, dp_event.LaplaceDpEvent):
        return variables.LaplaceMechanism(1 / asked.noise_multiplier)
    noise, rate = _sampled_gaussian(asked)
    if rate == 1.0:
        return variables.GaussianMechanism(noise)
    return variables.PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=noise)


def event(noise_multiplier: float, rate: float, steps: int) -> DpEvent:
    """Poisson-sampled Gaussian steps as dp_accounting describes them."""
    item = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise_multiplier))
    return dp_event.SelfComposedDpEvent(item, steps)


def calibrated(epsilon: float, delta: float, rate: float, steps: int, tolerance: float, interval: float) -> float:
    """The noise multiplier by dp_accounting's search in [0.5, 5] with its PLD accountant at a distance of points."""
    return float(
        mechanism_calibration.calibrate_dp_mechanism(
            lambda: PLDAccountant(value_discretization_interval=interval),
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
    distribution = pld.from_gaussian_mechanism(sigma, sampling_prob=rate).self_compose(steps)
    epsilons = np.linspace(0.0, float(distribution.get_epsilon_for_delta(1e-9)), alphas.size)
    deltas = np.asarray(distribution.get_delta_for_epsilon(epsilons))
    grown = np.exp(epsilons)
    first = (1 - deltas) - np.outer(alphas, grown)
    second = (1 - deltas - alphas[:, None]) / grown
    return np.asarray(np.maximum(np.maximum(first, second).max(axis=1), 0.0))
