"""Rényi DP: divergences of many orders, which add up order by order."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.base import Accountant, Unsupported, noise
from dpassay.accounting.accountants.basic import PURE, Basic, pure_epsilon
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Rigor
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    DiscreteGaussianDpEvent,
    ExPostSelectionDpEvent,
    PermuteAndFlipDpEvent,
)
from dpassay.accounting.tuning.runs import NumberOfRuns, curve_of_divergences, divergences, pure_extra
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats

ORDERS: tuple[float, ...] = (
    *(round(1 + x / 20, 2) for x in range(1, 20)),
    *(round(2 + x / 10, 1) for x in range(90)),
    *(float(x) for x in range(11, 64)),
    *(float(x) for x in range(64, 256, 8)),
    *(float(x) for x in range(256, 1025, 64)),
)
"""The default orders: 1.05 to 1.95, 2 to 10.9 in tenths, whole numbers to 63, then in steps to 1024."""

_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Renyi:
    """Upper bounds on the Rényi divergence at each order, and whether each includes its numerical error."""

    divergence: Floats
    certified: Bools


class RenyiAccountant(Accountant[Renyi]):
    """Rényi DP (Mironov 2017), converted to ε by Canonne, Kamath and Steinke (2020), Proposition 12.

    Rigor: certified at every order if the event's divergence is a closed form (Gaussian, Laplace, pure, zCDP, bounded
    range), and at whole orders for Poisson-sampled Gaussians; for the best of several runs where it is for one.
    `epsilon` and `delta` use those orders only. `estimate` uses all orders, with fractional ones of sampled Gaussians
    from dp_accounting, and is an estimate.

    Args:
        adjacency: add_remove, replace_one or zero_out.
        unit: the privacy unit.
        orders: the orders to try, each above 1.
    """

    name = names.RDP

    def __init__(
        self, adjacency: Adjacency | str, unit: Unit | str | None = None, orders: Sequence[float] | None = None
    ) -> None:
        super().__init__(adjacency, unit)
        self.orders: Floats = np.array(ORDERS if orders is None else orders, dtype=np.float64)
        if self.orders.ndim != 1 or not self.orders.size or not (self.orders > 1).all():
            raise ValueError("orders must be a list of numbers above 1")

    def _copy(self) -> Self:
        return type(self)(self.adjacency, self.unit, tuple(self.orders))

    def divergence(self, order: float) -> Bound:
        """The Rényi divergence of one order, whether or not it is in `orders`.

        If the events are zCDP, the divergence is also at most ξ + ρα by their exact sums. This is rounded up once, so
        that for Gaussians a claim that is exact to the last digit is met.
        """
        validate.finite(order=order)
        single = type(self)(self.adjacency, self.unit, (order,)).compose(self.event)
        certified = bool(single.cost.certified[0])
        value = float(single.cost.divergence[0])
        concentrated = ZeroConcentrated(self.adjacency, self.unit)
        if concentrated.supports(self.event) is None:
            rho, xi = concentrated.compose(self.event).cost
            value = min(value, formulas.up(xi + rho * Fraction(order)))
        return self._bound(
            value,
            "renyi_epsilon",
            at=order,
            rigor=Rigor.CERTIFIED if certified else Rigor.ESTIMATE,
        )

    def epsilon(self, delta: float) -> Bound:
        """ε(δ) at the best certified order; inf if there is none."""
        return self._bound(self._least_epsilon(delta, self.cost.certified), "epsilon", delta=delta)

    def estimate(self, delta: float) -> Bound:
        """ε(δ) at the best of all orders, including fractional ones of sampled events."""
        everywhere = np.ones(self.orders.shape, dtype=bool)
        rigor = Rigor.CERTIFIED if self.cost.certified.all() else Rigor.ESTIMATE
        return self._bound(self._least_epsilon(delta, everywhere), "epsilon", delta=delta, rigor=rigor)

    def delta(self, epsilon: float) -> Bound:
        """δ(ε) at the best certified order."""
        validate.non_negative(epsilon=epsilon)
        logs = formulas.log_delta_from_rdp(self.orders, self.cost.divergence, epsilon)
        least = float(np.where(self.cost.certified, logs, 0.0).min())
        zero = bool((self.cost.divergence[self.cost.certified] == 0).any())
        value = 0.0 if zero else math.exp(least) * (1 + 8 * _UNIT) + 1e-320  # an underflow to 0 would mean pure DP
        return self._bound(min(1.0, value), "delta", at=epsilon)

    def _least_epsilon(self, delta: float, allowed: Bools) -> float:
        validate.open_probability(delta=delta)
        values = formulas.epsilon_from_rdp(self.orders, self.cost.divergence, delta)
        return float(np.where(allowed, values, math.inf).min())

    def _zero(self) -> Renyi:
        return self._closed_form(np.zeros(self.orders.shape))

    def _closed_form(self, divergence: Floats) -> Renyi:
        return Renyi(divergence, np.ones(self.orders.shape, dtype=bool))

    def _add(self, costs: Sequence[Renyi]) -> Renyi:
        with np.errstate(over="ignore"):  # an infinite divergence is an upper bound; likewise below
            total = np.sum([cost.divergence for cost in costs], axis=0) * (1 + 2 * len(costs) * _UNIT)
        return Renyi(total, np.logical_and.reduce([cost.certified for cost in costs]))

    def _times(self, cost: Renyi, count: int) -> Renyi:
        with np.errstate(over="ignore"):
            return Renyi(cost.divergence * float(count) * (1 + 4 * _UNIT), cost.certified)

    def _largest(self, costs: Sequence[Renyi], how_many: int) -> Renyi:
        worst = np.sort([cost.divergence for cost in costs], axis=0)[-how_many:]
        certified = np.logical_and.reduce([cost.certified for cost in costs])
        return Renyi(worst.sum(axis=0) * (1 + 4 * _UNIT), certified)


def _with_square(multiplier: float) -> float:
    """A noise multiplier that is no larger, whose square and its inverse are floats; 0 if it is too small."""
    return min(multiplier, 1e150) if multiplier > 1e-150 else 0.0


def _gaussian(accountant: RenyiAccountant, event: dp_event.GaussianDpEvent) -> Renyi:
    """α/(2σ²), σ halved under replace_one."""
    multiplier = _with_square(noise(event.noise_multiplier, "noise_multiplier") / accountant.scale)
    if not multiplier:
        return _non_private(accountant, event)
    return accountant._closed_form(accountant.orders / (2 * multiplier**2) * (1 + 8 * _UNIT))


def _discrete_gaussian(accountant: RenyiAccountant, event: DiscreteGaussianDpEvent) -> Renyi:
    """αΔ²/(2σ²), as of the Gaussian (Canonne, Kamath and Steinke 2020, Theorem 4)."""
    if not event.sensitivity:
        return accountant._zero()
    return _gaussian(accountant, dp_event.GaussianDpEvent(event.sigma / event.sensitivity * (1 - 4 * _UNIT)))


def _laplace(accountant: RenyiAccountant, event: dp_event.LaplaceDpEvent | PermuteAndFlipDpEvent) -> Renyi:
    """ε + log1p((α − 1)(e^{(1 − 2α)ε} − 1)/(2α − 1))/(α − 1), ε = 1/b (Mironov 2017, Proposition 6)."""
    epsilon = formulas.up(pure_epsilon(accountant, event))
    if math.isinf(epsilon):
        return _non_private(accountant, event)
    alpha = accountant.orders
    inside = (alpha - 1) * np.expm1((1 - 2 * alpha) * epsilon) / (2 * alpha - 1)
    exact = epsilon + np.log1p(inside) / (alpha - 1)
    # `inside` lies in (−1/2, 0], so log1p at most doubles its relative error of at most 12u.
    error = 4 * _UNIT * epsilon + 32 * _UNIT * np.abs(np.log1p(inside)) / (alpha - 1)
    return accountant._closed_form(np.maximum(exact + error, 0.0))


def _pure(accountant: RenyiAccountant, event: DpEvent) -> Renyi:
    epsilon = formulas.up(pure_epsilon(accountant, event))
    return accountant._closed_form(formulas.rdp_of_pure(epsilon, accountant.orders))


def _bounded_range(accountant: RenyiAccountant, event: BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent) -> Renyi:
    """The smaller of η²α/8 (Cesar and Rogers 2021) and the divergence of η-DP."""
    epsilon = formulas.up(pure_epsilon(accountant, event))
    if epsilon > 1e150:
        return _non_private(accountant, event)
    concentrated = epsilon**2 * accountant.orders / 8 * (1 + 8 * _UNIT)
    return accountant._closed_form(np.minimum(concentrated, formulas.rdp_of_pure(epsilon, accountant.orders)))


def _zcdp(accountant: RenyiAccountant, event: dp_event.ZCDpEvent) -> Renyi:
    rho, xi = noise(event.rho, "rho"), noise(event.xi, "xi")
    return accountant._closed_form((xi + rho * accountant.orders) * (1 + 4 * _UNIT))


def _poisson(accountant: RenyiAccountant, event: dp_event.PoissonSampledDpEvent) -> Renyi:
    """The sampled Gaussian (Mironov, Talwar and Zhang 2019): a sum at whole orders, dp_accounting's series at others.

    The inner event may be a composition of Gaussians on the same sample, which is one Gaussian.
    """
    rate = float(validate.probability(sampling_probability=event.sampling_probability))
    multiplier = _with_square(_joint_multiplier(accountant, event.event))
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        raise Unsupported("rdp has no bound for Poisson sampling under replace_one; use pld")
    if rate == 0:
        return accountant._zero()
    if not multiplier:
        return _non_private(accountant, event)
    if rate == 1:
        return _gaussian(accountant, dp_event.GaussianDpEvent(multiplier))
    is_integer = accountant.orders == np.rint(accountant.orders)
    divergence = np.empty(accountant.orders.shape)
    for index in np.flatnonzero(is_integer):
        divergence[index] = sampled_gaussian_divergence(rate, multiplier, int(accountant.orders[index]))
    if not is_integer.all():
        sampled = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        divergence[~is_integer] = _from_library(sampled, accountant.adjacency, tuple(accountant.orders[~is_integer]))
    return Renyi(divergence, is_integer)


@functools.lru_cache(maxsize=4096)
def sampled_gaussian_divergence(rate: float, multiplier: float, order: int) -> float:
    """An upper bound on the Rényi divergence of a whole order α of the Poisson-sampled Gaussian.

    log(Σ_k C(α,k) q^k (1−q)^{α−k} e^{(k² − k)/(2σ²)})/(α − 1). The binomial weights sum to 1, so it is log1p(Σ_{k ≥ 2}
    weight_k·expm1(·)), without cancellation. Every logarithm in the sum is at most `size` in absolute value, with
    relative error below 16 units in the last place (gammaln included). So the sum of α terms has relative error below
    (16·size + 2α)u.

    Source: Mironov, Talwar and Zhang, "Rényi DP of the Sampled Gaussian Mechanism" (2019), Section 3.3.
    """
    from scipy.special import gammaln, logsumexp

    k = np.arange(2, order + 1, dtype=np.float64)
    log_factorials = gammaln(order + 1), gammaln(k + 1), gammaln(order - k + 1)
    exponent = (k * k - k) / (2 * multiplier**2)
    log_expm1 = exponent + np.log(-np.expm1(-exponent))
    parts = [log_factorials[0] - log_factorials[1] - log_factorials[2]]
    parts += [k * math.log(rate), (order - k) * math.log1p(-rate), log_expm1]
    sizes = log_factorials[0] + log_factorials[1] + log_factorials[2] + exponent + np.abs(log_expm1)
    size = float((sizes + np.abs(parts[1]) + np.abs(parts[2])).max())
    log_sum = float(logsumexp(np.sum(parts, axis=0))) + (16 * size + 2 * order + 16) * 2 * _UNIT
    total = log_sum + math.log1p(math.exp(-log_sum)) if log_sum > 0 else math.log1p(math.exp(log_sum))
    return total / (order - 1) * (1 + 16 * _UNIT)


def _joint_multiplier(accountant: RenyiAccountant, event: DpEvent) -> float:
    """The noise multiplier of one Gaussian equivalent to Gaussians on the same sample, rounded down."""
    if isinstance(event, dp_event.GaussianDpEvent):
        return noise(event.noise_multiplier, "noise_multiplier")
    if isinstance(event, dp_event.SelfComposedDpEvent):
        count = validate.integer(minimum=1, count=event.count)
        return _joint_multiplier(accountant, event.event) / math.sqrt(count) * (1 - 4 * _UNIT)
    if isinstance(event, dp_event.ComposedDpEvent) and event.events:
        multipliers = [_joint_multiplier(accountant, part) for part in event.events]
        if not all(multipliers):
            return 0.0
        return 1 / math.sqrt(math.fsum(m**-2 for m in multipliers)) * (1 - 8 * _UNIT)
    raise Unsupported(f"rdp has no bound for a sampled {type(event).__name__}, only for sampled Gaussians")


def _without_replacement(accountant: RenyiAccountant, event: dp_event.SampledWithoutReplacementDpEvent) -> Renyi:
    """Sampling without replacement (Wang, Balle and Kasiviswanathan 2019, Theorem 27), by dp_accounting's series.

    The multiplier is halved, since exchanging a unit moves the sum by twice its norm, which the library does not
    account for.
    """
    multiplier = _joint_multiplier(accountant, event.event)
    size = validate.integer(minimum=1, source_dataset_size=event.source_dataset_size)
    sample = validate.integer(sample_size=event.sample_size)
    if sample > size:
        raise ValueError(f"sample_size must be at most source_dataset_size ({size}), not {sample}")
    if accountant.adjacency is not Adjacency.REPLACE_ONE:
        raise Unsupported("rdp has a bound for sampling without replacement under replace_one only")
    if not sample:
        return accountant._zero()
    if not multiplier:
        return _non_private(accountant, event)
    halved = dp_event.GaussianDpEvent(multiplier / accountant.scale)
    sampled = dp_event.SampledWithoutReplacementDpEvent(size, sample, halved)
    divergence = np.full(accountant.orders.shape, math.inf)
    few = accountant.orders <= 64  # the series takes time quadratic in the order
    divergence[few] = _from_library(sampled, accountant.adjacency, tuple(accountant.orders[few]))
    return Renyi(divergence, np.zeros(accountant.orders.shape, dtype=bool))


@contextmanager
def _without_notes() -> Iterator[None]:
    """Suppresses the library's log line for each order at which its series diverges; that divergence is infinite."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@functools.lru_cache(maxsize=64)
def _from_library(event: DpEvent, adjacency: Adjacency, orders: tuple[float, ...]) -> Floats:
    """Divergences from dp_accounting's RdpAccountant, which does not double sensitivities."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    replaced = adjacency is Adjacency.REPLACE_ONE
    relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    library = RdpAccountant(orders, relation)
    with _without_notes():
        library.compose(event)
    return np.asarray(library.rdp, dtype=np.float64)


def _best_of_runs(accountant: RenyiAccountant, event: dp_event.RepeatAndSelectDpEvent) -> Renyi:
    """The best of a random number of runs; certified at the orders at which one run is.

    Proof: docs/proofs/tuning.md, Theorems 1 to 3.
    """
    runs = NumberOfRuns(event.mean, event.shape)
    single = accountant._cost(event.event)
    pure = math.inf
    if Basic(accountant.adjacency).supports(event.event) is None:
        pure = Basic(accountant.adjacency).compose(event.event).pure().value
    everywhere, certified = np.ones(accountant.orders.shape, dtype=bool), single.certified
    results = np.full(accountant.orders.shape, math.inf)
    for chosen in (certified,) if certified.all() else (everywhere, certified):
        orders, divergence = accountant.orders[chosen], single.divergence[chosen]
        if orders.size:
            results[chosen] = divergences(runs, orders, divergence, curve_of_divergences(orders, divergence, pure))
    if math.isfinite(pure):
        whole = formulas.up(Fraction(pure) + Fraction(pure_extra(runs, pure)))
        results = np.minimum(results, formulas.rdp_of_pure(whole, accountant.orders))
    return Renyi(results, certified)


def _non_private(accountant: RenyiAccountant, event: DpEvent) -> Renyi:
    return accountant._closed_form(np.full(accountant.orders.shape, math.inf))


RenyiAccountant.handlers = {
    **dict.fromkeys(PURE, _pure),
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.LaplaceDpEvent: _laplace,
    PermuteAndFlipDpEvent: _laplace,
    DiscreteGaussianDpEvent: _discrete_gaussian,
    dp_event.ZCDpEvent: _zcdp,
    BoundedRangeSelectionDpEvent: _bounded_range,
    ExPostSelectionDpEvent: _bounded_range,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.SampledWithoutReplacementDpEvent: _without_replacement,
    dp_event.RepeatAndSelectDpEvent: _best_of_runs,
    dp_event.NonPrivateDpEvent: _non_private,
}
