"""The accountant of privacy random variables, by prv_accountant (``pip install '.[prv]'``)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.alternatives import (
    Alternatives,
    Composition,
    DistributionAccountant,
    cost_of_single,
)
from dpassay.accounting.accountants.base import Unsupported, noise
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Bound
from dpassay.base import validate
from dpassay.base.extras import install

EPSILON_ERROR = 0.01
"""The ε error that is requested from prv_accountant; it is added to every answer."""

_MAX_POINTS = 4_000_000  # about ten seconds
_MIN_NOISE = 0.01  # with less noise, losses are in the thousands and the library's sums may not end


class PrivacyRandomVariables(DistributionAccountant):
    """Numerical composition of privacy random variables (Gopi, Lee and Wutschitz 2021): the upper end of the library's
    answer.

    Rigor: estimate. The library composes one direction of the adjacency only (removal), and its stated error excludes
    floating point.
    """

    name = names.PRV
    library = "prv_accountant"

    def blowup(self, p: float) -> Bound:
        raise Unsupported("prv composes one direction only, so it has no blow-up; use pld, rdp or zcdp")

    def beta(self, alpha: float) -> Bound:
        raise Unsupported("prv composes one direction only, so it has no trade-off curve; use pld, rdp or zcdp")

    def _epsilon_of(self, composition: Composition, delta: float) -> float:
        if not composition:
            return 0.0
        if delta <= 1e-13:
            raise Unsupported(f"prv needs δ above 1e-13, the resolution of its float64 sums, not {delta}")
        composed = _compose(composition, self.adjacency, delta / 1000)
        try:
            return float(composed.compute_epsilon(delta, delta / 1000, EPSILON_ERROR)[2])
        except (RuntimeError, ValueError, FloatingPointError) as error:
            raise Unsupported(f"prv_accountant failed on this composition: {error}") from None

    def _delta_of(self, composition: Composition, epsilon: float) -> float:
        if not composition:
            return 0.0
        composed = _compose(composition, self.adjacency, 1e-10)
        return float(composed.compute_delta_estimate(epsilon - EPSILON_ERROR)) + 1e-10


@functools.lru_cache(maxsize=8)
def _compose(composition: Composition, adjacency: Adjacency, delta_error: float) -> Any:
    from prv_accountant import PRVAccountant

    composition = _joined(composition)
    variables = [_variable(event, adjacency) for event, _ in composition]
    counts = [count for _, count in composition]
    _check_size(composition, variables, delta_error)
    try:
        library = PRVAccountant(
            prvs=variables, eps_error=EPSILON_ERROR, delta_error=delta_error, max_self_compositions=counts
        )
        return library.compute_composition(counts)
    except (RuntimeError, ValueError, FloatingPointError) as error:
        raise Unsupported(f"prv_accountant failed on this composition: {error}") from None


def _joined(composition: Composition) -> Composition:
    """n Gaussians as one with σ/√n, since the library's lattice grows with n."""
    gaussians = [(event, count) for event, count in composition if isinstance(event, dp_event.GaussianDpEvent)]
    if not gaussians:
        return composition
    mu = math.hypot(*(math.sqrt(count) / event.noise_multiplier for event, count in gaussians))
    rest = [part for part in composition if not isinstance(part[0], dp_event.GaussianDpEvent)]
    return (*rest, (dp_event.GaussianDpEvent(1 / min(mu, 1e300)), 1))  # too little noise in any case


def _check_size(composition: Composition, variables: list[Any], delta_error: float) -> None:
    """Refuses a composition that would need too many lattice points.

    Half the domain and the mesh are the library's own (Gopi, Lee and Wutschitz 2021, Theorem 5.5 and Remark 5.6).
    """
    from prv_accountant.accountant import compute_safe_domain_size

    counts = [count for _, count in composition]
    noises = [getattr(event, "event", event).noise_multiplier for event, _ in composition]
    least = min(noises)
    if least < _MIN_NOISE:
        raise Unsupported(f"prv needs noise multipliers of at least {_MIN_NOISE:g}, not {least:g}")
    with np.errstate(all="ignore"):  # NaN fails the check below
        half = compute_safe_domain_size(variables, counts, eps_error=EPSILON_ERROR, delta_error=delta_error)
    mesh = EPSILON_ERROR / math.sqrt(sum(counts) / 2 * math.log(12 / delta_error))
    if not 2 * half <= mesh * _MAX_POINTS:
        raise Unsupported(
            f"prv_accountant would need {2 * half / mesh:.2g} lattice points for {sum(counts)} releases; "
            f"at most {_MAX_POINTS:.2g} are allowed"
        )


def _variable(event: DpEvent, adjacency: Adjacency) -> Any:
    """The library's random variable; sensitivities are doubled here under replace_one."""
    from prv_accountant import privacy_random_variables as variables

    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return variables.PoissonSubsampledGaussianMechanism(
            sampling_probability=event.sampling_probability, noise_multiplier=event.event.noise_multiplier
        )
    scale = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    return variables.GaussianMechanism(event.noise_multiplier / scale)


def _check_installed() -> None:
    if not PrivacyRandomVariables.is_installed():
        raise Unsupported(f"prv needs the library prv_accountant, which is not installed: {install('prv')}")


def _gaussian(accountant: PrivacyRandomVariables, event: dp_event.GaussianDpEvent) -> Alternatives:
    _check_installed()
    if not noise(event.noise_multiplier, "noise_multiplier"):
        return cost_of_single(accountant, dp_event.NonPrivateDpEvent())
    return cost_of_single(accountant, event)


def _with_atoms(accountant: PrivacyRandomVariables, event: DpEvent) -> Alternatives:
    """The library integrates a mean numerically; if a law has atoms, it fails or shifts its lattice."""
    raise Unsupported(f"prv has no reliable bound for {type(event).__name__}, whose privacy loss has atoms; use pld")


def _poisson(accountant: PrivacyRandomVariables, event: dp_event.PoissonSampledDpEvent) -> Alternatives:
    rate = float(validate.probability(sampling_probability=event.sampling_probability))
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        raise Unsupported("prv has no bound for Poisson sampling under replace_one; use pld")
    if not isinstance(event.event, dp_event.GaussianDpEvent):
        raise Unsupported(f"prv has no bound for a sampled {type(event.event).__name__}, only for a sampled Gaussian")
    _check_installed()
    if rate == 0:
        return accountant._zero()
    if rate == 1 or not noise(event.event.noise_multiplier, "noise_multiplier"):
        return _gaussian(accountant, event.event)
    return cost_of_single(accountant, event)


PrivacyRandomVariables.handlers = {
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.LaplaceDpEvent: _with_atoms,
    dp_event.DiscreteLaplaceDpEvent: _with_atoms,
    dp_event.RandomizedResponseDpEvent: _with_atoms,
    dp_event.NonPrivateDpEvent: cost_of_single,
}
