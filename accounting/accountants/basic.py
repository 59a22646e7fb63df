"""Basic composition: pure ε adds up, exactly, in rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.base import Accountant, Unsupported, noise, randomized_response_epsilon
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    EpsilonDeltaDpEvent,
    ExPostSelectionDpEvent,
    PermuteAndFlipDpEvent,
)
from dpassay.accounting.tuning.runs import NumberOfRuns, pure_extra
from dpassay.base import validate

Exact = Fraction | float
"""A non-negative rational number, or the float inf."""


def exact_sum(costs: Iterable[Exact]) -> Exact:
    """The sum of the costs; infinity if one of them is, which Python adds only to fractions that a float can hold."""
    total = Fraction(0)
    for cost in costs:
        if not isinstance(cost, float):
            total += cost
        elif math.isinf(cost):
            return cost
        else:
            total += Fraction(cost)
    return total


class ExactSum(Accountant[Exact]):
    """An accountant whose cost is a single number that adds up exactly; of disjoint parts the largest counts."""

    def _zero(self) -> Exact:
        return Fraction(0)

    def _add(self, costs: Sequence[Exact]) -> Exact:
        return exact_sum(costs)

    def _times(self, cost: Exact, count: int) -> Exact:
        return cost * count

    def _largest(self, costs: Sequence[Exact], how_many: int) -> Exact:
        return self._add(sorted(costs, reverse=True)[:how_many])


class Basic(ExactSum):
    """The sum of pure ε (Dwork et al. 2006). Of disjoint parts the worst counts; a group of k costs k·ε.

    Rigor: certified. Sums are exact; an event's own ε that is a logarithm is rounded up.
    """

    name = names.BASIC
    converts_groups = True

    def pure(self) -> Bound:
        """The pure ε, with δ = 0."""
        return self._bound(self._epsilon(), "epsilon")

    def epsilon(self, delta: float) -> Bound:
        """The pure ε, which holds at every δ."""
        validate.probability(delta=delta)
        return self._bound(self._epsilon(), "epsilon", delta=delta)

    def delta(self, epsilon: float) -> Bound:
        """δ(ε) of the pure ε₀."""
        validate.non_negative(epsilon=epsilon)
        return self._bound(formulas.delta_from_pure(self._epsilon(), epsilon), "delta", at=epsilon)

    def _epsilon(self) -> float:
        return formulas.up(self.cost * self.unit.size)


def pure_epsilon(accountant: Accountant[Any], event: DpEvent) -> Exact:
    """The pure ε of an event of a type in `PURE`, at the adjacency of any accountant."""
    return next(PURE[kind](accountant, event) for kind in type(event).__mro__ if kind in PURE)


def _bounded_range(
    accountant: Accountant[Any], event: BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent
) -> Fraction:
    """η-bounded range is η-DP: a log-ratio in [t − η, t] of two laws that each sum to 1 has t in [0, η]."""
    return Fraction(event.eta) + 4 * Fraction(event.rounding)


def _permute_and_flip(accountant: Accountant[Any], event: PermuteAndFlipDpEvent) -> Fraction:
    return Fraction(noise(event.epsilon, "epsilon"))


def _epsilon_delta(accountant: Accountant[Any], event: EpsilonDeltaDpEvent) -> Exact:
    if event.delta:
        raise Unsupported(f"{accountant.name} sums pure ε, and (ε, δ)-DP with δ > 0 has none")
    return Fraction(noise(event.epsilon, "epsilon"))


def _laplace(accountant: Accountant[Any], event: dp_event.LaplaceDpEvent) -> Exact:
    multiplier = noise(event.noise_multiplier, "noise_multiplier")
    return accountant.scale / Fraction(multiplier) if multiplier else math.inf


def _discrete_laplace(accountant: Accountant[Any], event: dp_event.DiscreteLaplaceDpEvent) -> Exact:
    """A parameter of 0 is not a law; it counts as no protection, as in dp_accounting."""
    sensitivity = validate.integer(sensitivity=event.sensitivity)
    parameter = Fraction(noise(event.noise_parameter, "noise_parameter"))
    return parameter * sensitivity * accountant.scale if parameter or not sensitivity else math.inf


def _randomized_response(accountant: Accountant[Any], event: dp_event.RandomizedResponseDpEvent) -> Exact:
    epsilon = randomized_response_epsilon(accountant, event)
    return epsilon if math.isinf(epsilon) else Fraction(epsilon)


def _poisson(accountant: Basic, event: dp_event.PoissonSampledDpEvent) -> Exact:
    """Under add_remove, log(1 + q(e^ε − 1)) (Li, Qardaji and Su 2012); otherwise the ε of the inner event, without
    amplification.

    Under the other adjacencies the sampled laws are mixtures with the same weights, so the inner ε holds.
    """
    rate = float(validate.probability(sampling_probability=event.sampling_probability))
    inner = accountant._cost(event.event)
    if accountant.adjacency is not Adjacency.ADD_REMOVE or inner == 0 or rate == 1:
        return inner
    if rate == 0:
        return Fraction(0)
    epsilon = formulas.up(inner)
    if math.isinf(epsilon) or epsilon > 700:
        return inner
    return min(inner, Fraction(math.log1p(rate * math.expm1(epsilon)) * (1 + 2.0**-49)))


def _gaussian(accountant: Accountant[Any], event: dp_event.DpEvent) -> Exact:
    raise Unsupported(f"{accountant.name} sums pure ε, and {type(event).__name__} has none")


def _zcdp(accountant: Accountant[Any], event: dp_event.ZCDpEvent) -> Exact:
    if event.rho == 0:
        return Fraction(noise(event.xi, "xi"))  # a divergence of at most ξ at every order is pure ξ-DP
    return _gaussian(accountant, event)


def _non_private(accountant: Accountant[Any], event: dp_event.NonPrivateDpEvent) -> Exact:
    return math.inf


def _best_of_runs(accountant: Accountant[Any], event: dp_event.RepeatAndSelectDpEvent) -> Exact:
    """The best of a random number of runs (docs/proofs/tuning.md, Theorem 2); at most (2 + shape)ε."""
    runs = NumberOfRuns(event.mean, event.shape)
    try:
        inner = Basic(accountant.adjacency)._cost(event.event)
    except Unsupported as reason:
        raise Unsupported(
            f"{accountant.name} has no bound for the best of several runs without a pure ε: {reason}"
        ) from None
    extra = pure_extra(runs, formulas.up(inner))
    return math.inf if math.isinf(extra) or math.isinf(inner) else Fraction(inner) + Fraction(extra)


PURE: dict[type[DpEvent], Callable[[Accountant[Any], Any], Exact]] = {
    BoundedRangeSelectionDpEvent: _bounded_range,
    ExPostSelectionDpEvent: _bounded_range,
    EpsilonDeltaDpEvent: _epsilon_delta,
    PermuteAndFlipDpEvent: _permute_and_flip,
    dp_event.LaplaceDpEvent: _laplace,
    dp_event.DiscreteLaplaceDpEvent: _discrete_laplace,
    dp_event.RandomizedResponseDpEvent: _randomized_response,
    dp_event.RepeatAndSelectDpEvent: _best_of_runs,
    dp_event.NonPrivateDpEvent: _non_private,
}
"""The pure ε of each single mechanism that has one. An accountant that has nothing better for an event converts it."""

Basic.handlers = {
    **PURE,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.ZCDpEvent: _zcdp,
}
