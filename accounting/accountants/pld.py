"""The accountant of privacy-loss distributions, by dp_accounting."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from dp_accounting import DpEvent, NeighboringRelation, dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.alternatives import (
    Alternatives,
    Composition,
    DistributionAccountant,
    cost_of_single,
)
from dpassay.accounting.accountants.base import Unsupported, noise, randomized_response_epsilon
from dpassay.accounting.adjacency import Adjacency
from dpassay.base import validate

_RELATIONS = {
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
}
_INTERVAL = 1e-4


class PrivacyLoss(DistributionAccountant):
    """Composed privacy-loss distributions (Koskela et al. 2020; Doroshenko et al. 2022), by dp_accounting's `pld`.

    Each event is built and composed from the library's constructors, not through its `PLDAccountant`, which ignores the
    count of a `RandomizedResponseDpEvent` and lacks Laplace noise under replace_one.

    Rigor: estimate. The library's discretisation is pessimistic, but its truncation and rounding are not counted.
    """

    name = names.PLD
    library = "dp_accounting"

    def _epsilon_of(self, composition: Composition, delta: float) -> float:
        losses = _compose(repr(composition), self.adjacency, composition)
        epsilon, step = float(losses.get_epsilon_for_delta(delta)), 2.0**-50
        # The library solves for ε by a difference that may lose digits, so that its own δ at this ε is larger.
        while math.isfinite(epsilon) and losses.get_delta_for_epsilon(epsilon) > delta and step < 1:
            epsilon, step = epsilon + step * max(1.0, epsilon), 2 * step
        return epsilon

    def _delta_of(self, composition: Composition, epsilon: float) -> float:
        return float(_compose(repr(composition), self.adjacency, composition).get_delta_for_epsilon(epsilon))


class _Key(tuple[str, Adjacency, Composition]):
    """A cache key that compares by the composition's text, since dp_accounting's events with lists are not hashable."""

    def __hash__(self) -> int:
        return hash(self[:2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self[:2] == other[:2]


def _compose(text: str, adjacency: Adjacency, composition: Composition) -> Any:
    try:
        return _cached(_Key((text, adjacency, composition)))
    except (ValueError, ArithmeticError, MemoryError) as error:  # parameters were checked, so this is a size limit
        reason = str(error) or type(error).__name__
        raise Unsupported(f"dp_accounting failed on this composition: {reason}") from None


_MAX_POINTS = 1_000_000  # a few seconds


@functools.lru_cache(maxsize=8)
def _cached(key: _Key) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    _, adjacency, composition = key
    total = pld.identity(_INTERVAL)
    for event, count in composition:
        if isinstance(event, dp_event.GaussianDpEvent):  # n Gaussians are one, with σ/√n
            moved = 2 if adjacency is Adjacency.REPLACE_ONE else 1
            reach = 16 * moved * math.sqrt(count) / event.noise_multiplier  # 8 standard deviations to each side
            if reach > _INTERVAL * _MAX_POINTS:
                raise ValueError(f"the losses of {count} releases need more than {_MAX_POINTS} grid points")
            joint = pld.from_gaussian_mechanism(
                event.noise_multiplier / math.sqrt(count),
                value_discretization_interval=_INTERVAL,
                neighboring_relation=_RELATIONS[adjacency],
            )
            total = total.compose(joint)
        else:
            total = total.compose(_single(event, adjacency).self_compose(count))
    return total


def _single(event: DpEvent, adjacency: Adjacency) -> Any:
    """The distribution of one run.

    Laplace sensitivities are doubled here under replace_one; the library doubles those of Gaussians and randomised
    response.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    scale = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    if (points := _range_of_losses(event, scale) / _INTERVAL) > _MAX_POINTS:
        raise ValueError(f"the losses of {type(event).__name__} need {points:.2g} grid points")
    common = {"value_discretization_interval": _INTERVAL}
    match event:
        case dp_event.LaplaceDpEvent():
            return pld.from_laplace_mechanism(event.noise_multiplier, sensitivity=scale, **common)
        case dp_event.DiscreteLaplaceDpEvent():
            sensitivity = event.sensitivity * scale
            return pld.from_discrete_laplace_mechanism(event.noise_parameter, sensitivity=sensitivity, **common)
        case dp_event.RandomizedResponseDpEvent():
            return pld.from_randomized_response(
                event.noise_parameter, event.num_buckets, neighboring_relation=_RELATIONS[adjacency], **common
            )
        case dp_event.MixtureOfGaussiansDpEvent():
            return pld.from_mixture_gaussian_mechanism(
                event.standard_deviation, event.sensitivities, event.sampling_probs, **common
            )
        case dp_event.PoissonSampledDpEvent(event=dp_event.GaussianDpEvent()):
            return pld.from_gaussian_mechanism(
                event.event.noise_multiplier,
                sampling_prob=event.sampling_probability,
                neighboring_relation=_RELATIONS[adjacency],
                **common,
            )
        case dp_event.PoissonSampledDpEvent(event=dp_event.LaplaceDpEvent()):
            return pld.from_laplace_mechanism(
                event.event.noise_multiplier, sampling_prob=event.sampling_probability, **common
            )
    raise AssertionError(f"no distribution for {event!r}")


def _range_of_losses(event: DpEvent, scale: int) -> float:
    """About the width of the losses of one run: 16 standard deviations of a Gaussian, the whole range of Laplace."""
    match event:
        case dp_event.PoissonSampledDpEvent():
            return _range_of_losses(event.event, scale)
        case dp_event.GaussianDpEvent():
            return 16 * scale / float(event.noise_multiplier)
        case dp_event.LaplaceDpEvent():
            return 2 * scale / float(event.noise_multiplier)
        case dp_event.MixtureOfGaussiansDpEvent():
            most = float(max(event.sensitivities)) / float(event.standard_deviation)
            return most * (16 + most)
    return 0.0


def _noisy(accountant: PrivacyLoss, event: dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent) -> Alternatives:
    if not noise(event.noise_multiplier, "noise_multiplier"):
        return cost_of_single(accountant, dp_event.NonPrivateDpEvent())
    return cost_of_single(accountant, event)


def _discrete_laplace(accountant: PrivacyLoss, event: dp_event.DiscreteLaplaceDpEvent) -> Alternatives:
    validate.integer(sensitivity=event.sensitivity)
    if not noise(event.noise_parameter, "noise_parameter") or not event.sensitivity:
        return accountant._zero()  # p(x) ∝ e^{−a|x|}: the limit a → 0 is flat noise, without loss
    return cost_of_single(accountant, event)


def _randomized_response(accountant: PrivacyLoss, event: dp_event.RandomizedResponseDpEvent) -> Alternatives:
    epsilon = randomized_response_epsilon(accountant, event)
    if epsilon == 0:
        return accountant._zero()
    return cost_of_single(accountant, dp_event.NonPrivateDpEvent() if math.isinf(epsilon) else event)


def _mixture(accountant: PrivacyLoss, event: dp_event.MixtureOfGaussiansDpEvent) -> Alternatives:
    """Scaled to a largest sensitivity of 1, since the library's answer depends on the unit of the noise."""
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        raise Unsupported("pld has no bound for MixtureOfGaussiansDpEvent under replace_one")
    largest = max((abs(float(value)) for value in event.sensitivities), default=0.0)
    if not largest:
        return accountant._zero()
    deviation = noise(event.standard_deviation, "standard_deviation")
    if not deviation:
        return cost_of_single(accountant, dp_event.NonPrivateDpEvent())
    scaled = tuple(float(np.float64(value) / largest) for value in event.sensitivities)
    probabilities = tuple(float(value) for value in event.sampling_probs)
    return cost_of_single(accountant, dp_event.MixtureOfGaussiansDpEvent(deviation / largest, scaled, probabilities))


def _poisson(accountant: PrivacyLoss, event: dp_event.PoissonSampledDpEvent) -> Alternatives:
    inner, rate = event.event, float(validate.probability(sampling_probability=event.sampling_probability))
    if isinstance(inner, dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent):
        if isinstance(inner, dp_event.LaplaceDpEvent) and accountant.adjacency is Adjacency.REPLACE_ONE:
            raise Unsupported("pld has no bound for sampled Laplace noise under replace_one")
        if rate == 0:
            return accountant._zero()
        if rate == 1 or not inner.noise_multiplier:
            return _noisy(accountant, inner)
        noise(inner.noise_multiplier, "noise_multiplier")
        return cost_of_single(accountant, event)
    raise Unsupported(
        f"pld has no bound for a sampled {type(inner).__name__}, only for sampled Gaussian or Laplace noise"
    )


PrivacyLoss.handlers = {
    dp_event.GaussianDpEvent: _noisy,
    dp_event.LaplaceDpEvent: _noisy,
    dp_event.DiscreteLaplaceDpEvent: _discrete_laplace,
    dp_event.RandomizedResponseDpEvent: _randomized_response,
    dp_event.MixtureOfGaussiansDpEvent: _mixture,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.NonPrivateDpEvent: cost_of_single,
}
