"""The lattice accountant: it turns an event into a dominating pair, and every answer is a certified interval."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.advanced import Advanced
from dpassay.accounting.accountants.base import Accountant, Unsupported, noise, randomized_response_epsilon
from dpassay.accounting.accountants.basic import Basic
from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExPostSelectionDpEvent,
    ParallelDpEvent,
    PermuteAndFlipDpEvent,
    RandomAllocationDpEvent,
    ShuffledBatchesDpEvent,
    TruncatedPoissonSampledDpEvent,
    with_inner,
)
from dpassay.accounting.group_privacy import delta_of_group
from dpassay.accounting.lattice import gaussian_curve
from dpassay.accounting.lattice.best_of_runs import best_of_runs
from dpassay.accounting.lattice.pairs import FINEST, WIDTH, DominatingPair, WidthNotMet
from dpassay.accounting.tuning.runs import NumberOfRuns, curve_of_divergences
from dpassay.base import validate
from dpassay.base.arrays import Floats

MAX_GROUP = 1000
"""The largest group of sampled records for which there is a pair; a larger one is a chain of single records."""
_LEAST_WEIGHT = 1e-290
_CLOSED_FORMS: tuple[type[Accountant[Any]], ...] = (Basic, ZeroConcentrated, GaussianDP)
_OTHERS: tuple[type[Accountant[Any]], ...] = (*_CLOSED_FORMS, RenyiAccountant, Advanced)
"""All other accountants whose bounds are certified. `gdp` and `zcdp` take microseconds, the last two up to a second."""


class Lattice(Accountant[DominatingPair]):
    """Privacy-loss distributions of both directions on a lattice, bounded from above and from below.

    Rigor: certified; discretisation, truncation and the rounding of the transforms are counted. If neighbours attain
    the pair, a bound carries the interval that contains the exact value.

    Args:
        adjacency: add_remove, replace_one or zero_out.
        unit: the privacy unit.
        width: the requested relative width of intervals.
    """

    name = names.LATTICE
    converts_groups = True

    def __init__(self, adjacency: Adjacency | str, unit: Unit | str | None = None, width: float = WIDTH) -> None:
        super().__init__(adjacency, unit)
        self.width: float = validate.positive(width=width)
        self.removed = 0
        """Records that may be gone before the one in question is removed, in a chain of removals."""

    def _copy(self) -> Lattice:
        new = type(self)(self.adjacency, self.unit, self.width)
        new.removed = self.removed
        return new

    @property
    def pair(self) -> DominatingPair:
        """The dominating pair of everything composed so far."""
        return self.cost

    def epsilon(self, delta: float) -> Bound:
        result = self._least(lambda width: self.pair.epsilon(delta, width=width), lambda other: other.epsilon(delta))
        return self._answer(*result, "epsilon", delta=delta)

    def delta(self, epsilon: float) -> Bound:
        """The least δ; ε may be negative."""

        def ask_pair(width: float) -> Interval:
            return self.pair.delta(epsilon, width=width)

        if epsilon < 0:
            return self._answer(ask_pair(self.width), None, "delta", at=epsilon)
        return self._answer(*self._least(ask_pair, lambda other: other.delta(epsilon)), "delta", at=epsilon)

    def beta(self, alpha: float) -> Bound:
        power, source = self._least_power(alpha)
        result = Interval(max(0.0, (1 - power.upper) - 2**-53), min(1.0, (1 - power.lower) + 2**-53))
        return self._answer(result, source, "beta", at=alpha, direction=Direction.LOWER)

    def blowup(self, p: float) -> Bound:
        return self._answer(*self._least_power(p), "r", at=p)

    def mu(self, delta: float) -> Bound:
        """The least μ with δ(ε) ≤ max(δ_μ(ε), δ) for all ε ≥ 0; see `DominatingPair.mu`."""
        kinds = (GaussianDP,)
        return self._answer(
            *self._least(lambda width: self.pair.mu(delta, width=width), GaussianDP.mu, kinds, kinds), "mu", delta=delta
        )

    def against(self, limit: float, ask: Callable[[Lattice], Bound]) -> Bound:
        """A bound that is compared with a limit, on finer lattices while the limit is inside its interval.

        Args:
            limit: a claim, a target or a policy, in the units of the bound.
            ask: one of the questions, such as ``lambda lattice: lattice.epsilon(1e-5)``.

        Returns:
            A bound that meets the limit, or whose interval does not contain it, or the narrowest that there is.
        """
        bound, width = ask(self), self.width
        while width > FINEST and _undecided(bound, limit, width):
            width = max(width / 10, FINEST)
            finer = type(self)(self.adjacency, self.unit, width)
            finer.event, finer._total = self.event, self.cost
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WidthNotMet)  # the first question has warned
                bound = ask(finer)
        return bound

    def _least_power(self, p: float) -> tuple[Interval, str | None]:
        # Others find a blow-up from a whole curve, which takes long.
        return self._least(lambda width: self.pair.blowup(p, width=width), lambda other: other.blowup(p), ())

    def _least(
        self,
        ask_pair: Callable[[float], Interval],
        ask: Callable[[Any], Bound],
        if_narrow: Sequence[type[Accountant[Any]]] = _CLOSED_FORMS,
        else_ask: Sequence[type[Accountant[Any]]] = _OTHERS,
    ) -> tuple[Interval, str | None]:
        """The interval, with an upper end of at most what other accountants certify, and whose number that is.

        Those with closed forms are always asked. If the interval is narrow and neighbours attain the pair, no bound can
        be much below its upper end, so the others are not asked. This is decided at the default width, so that a
        narrower request does not ask fewer of them.
        """
        first = result = ask_pair(WIDTH)
        narrow = math.isfinite(first.upper) and first.upper - first.lower <= WIDTH * first.upper
        if self.width < WIDTH and not (narrow and first.upper - first.lower <= self.width * first.upper):
            finer = ask_pair(self.width)  # both hold, and a composition may be too wide for a fine lattice
            result = Interval(max(first.lower, finer.lower), min(first.upper, finer.upper))
        upper, source = result.upper, None
        for kind in if_narrow if narrow and self.pair.tight else else_ask:
            try:
                known = ask(kind(self.adjacency, self.unit).compose(self.event))
            except Unsupported:
                continue
            if known.rigor is Rigor.CERTIFIED and known.value < upper:
                upper, source = known.value, kind.name
        return Interval(min(result.lower, upper), upper), source

    def _answer(self, result: Interval, source: str | None, quantity: str, **at: Any) -> Bound:
        return replace(self._enclosed(result, quantity, attained=self.pair.tight, **at), source=source)

    def _zero(self) -> DominatingPair:
        return DominatingPair.identity()

    def _add(self, costs: Sequence[DominatingPair]) -> DominatingPair:
        return DominatingPair.identity().compose(*costs)

    def _times(self, cost: DominatingPair, count: int) -> DominatingPair:
        return cost.self_compose(count)

    @property
    def reach(self) -> int:
        """How far a unit moves a sum, in contributions of one record: the size of a group, doubled if exchanged."""
        return self.scale * self.unit.size

    def _total_cost(self, event: DpEvent) -> DominatingPair:
        """Of a group, by the pairs of its records if each part has one, else by a chain of single records.

        Proof: docs/proofs/groups.md, Theorems 1 and 6.
        """
        if not self.unit.is_group:
            return self._cost(event)
        try:
            return self._cost(event)
        except Unsupported:
            one = Lattice(self.adjacency)
            one.removed = self.unit.size - 1 if self.adjacency is Adjacency.ADD_REMOVE else 0
            return one.compose(event).pair.chained(self.unit.size)

    def _cost(self, event: DpEvent) -> DominatingPair:
        if self.unit.is_group and not isinstance(event, _OF_GROUPS):
            raise Unsupported(f"lattice has no bound of its own for {type(event).__name__} at unit {self.unit}")
        return super()._cost(event)

    def _assumptions(self, event: DpEvent) -> tuple[str, ...]:
        drawn = any(isinstance(part, dp_event.PoissonSampledDpEvent) for part in with_inner(event))
        if not self.unit.is_group or self.adjacency is Adjacency.REPLACE_ONE or not drawn:
            return super()._assumptions(event)
        together = "The records of a group come together or go together: none comes where another goes."
        return (*super()._assumptions(event), together)

    def _of_shuffled(self, event: ShuffledBatchesDpEvent) -> DominatingPair:
        """With a lower end for Gaussians, where a null record contributes 0."""
        whole, mu = super()._of_shuffled(event), _joint_mu(event.event)
        if event.num_batches == 1:
            return whole
        if not mu or math.isinf(mu):
            return whole.as_upper_bound()
        exchanged = self.adjacency is Adjacency.REPLACE_ONE
        return DominatingPair.gaussian_shuffle(1.0, event.num_batches, mu, exchanged=exchanged)

    def _largest(self, costs: Sequence[DominatingPair], how_many: int) -> DominatingPair:
        try:
            return DominatingPair.parallel(costs, single=how_many == 1)
        except ValueError as reason:
            raise Unsupported(f"lattice has no bound for these disjoint parts: {reason}") from None


def _undecided(bound: Bound, limit: float, width: float) -> bool:
    """Whether a bound does not meet a limit, and a narrower one might."""
    if bound.direction is Direction.LOWER:
        if bound.value >= limit:
            return False
        return (1 - bound.value) * (1 - width) <= 1 - limit if bound.interval is None else limit <= bound.interval.upper
    if bound.value <= limit or limit <= 0:
        return False
    return bound.value * (1 - width) <= limit if bound.interval is None else bound.interval.lower <= limit


def dominating_pair(event: DpEvent, adjacency: Adjacency | str) -> DominatingPair:
    """The dominating pair of an event.

    Args:
        event: any event that the `lattice` accountant supports.
        adjacency: the neighbouring relation, a member of `Adjacency` or its string.

    Raises:
        ValueError: if the event is not supported at the adjacency, with the reason.
    """
    return Lattice(adjacency).compose(event).pair


def _gaussian(accountant: Lattice, event: dp_event.GaussianDpEvent) -> DominatingPair:
    return DominatingPair.gaussian(noise(event.noise_multiplier, "noise_multiplier"), float(accountant.reach))


def _laplace(accountant: Lattice, event: dp_event.LaplaceDpEvent) -> DominatingPair:
    return DominatingPair.laplace(noise(event.noise_multiplier, "noise_multiplier"), float(accountant.reach))


def _discrete_laplace(accountant: Lattice, event: dp_event.DiscreteLaplaceDpEvent) -> DominatingPair:
    sensitivity = validate.integer(sensitivity=event.sensitivity)
    parameter = noise(event.noise_parameter, "noise_parameter")
    return DominatingPair.discrete_laplace(parameter, sensitivity * accountant.reach)


def _randomized_response(accountant: Lattice, event: dp_event.RandomizedResponseDpEvent) -> DominatingPair:
    """k-ary randomised response: two inputs under replace_one, an input and a uniform response under zero_out."""
    epsilon = randomized_response_epsilon(accountant, event)
    if epsilon == 0:
        return DominatingPair.identity()
    return _one_response(accountant, event).self_compose(accountant.unit.size)


def _one_response(accountant: Lattice, event: dp_event.RandomizedResponseDpEvent) -> DominatingPair:
    buckets, rest = int(event.num_buckets), float(event.noise_parameter) / event.num_buckets
    kept = (1 - float(event.noise_parameter)) + rest
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        others = [rest * (buckets - 2)] if buckets > 2 else []
        return DominatingPair.finite([kept, rest, *others], [rest, kept, *others])
    return DominatingPair.finite([kept, rest * (buckets - 1)], [1 / buckets, (buckets - 1) / buckets])


def _zcdp(accountant: Lattice, event: dp_event.ZCDpEvent) -> DominatingPair:
    own = dp_event.ZCDpEvent(noise(event.rho, "rho"), noise(event.xi, "xi"))
    return DominatingPair.concentrated(*ZeroConcentrated(accountant.adjacency, accountant.unit).compose(own).exact())


def _epsilon_delta(accountant: Lattice, event: EpsilonDeltaDpEvent) -> DominatingPair:
    """The pair that dominates every (ε, δ)-DP mechanism. What ran may be better, so it gives an upper bound only."""
    epsilon, delta = noise(event.epsilon, "epsilon"), float(event.delta)
    if not epsilon and not delta:
        return DominatingPair.identity()
    size = accountant.unit.size
    grown = delta_of_group(epsilon, delta, size) if size > 1 else delta
    if grown >= 1 > delta:
        raise Unsupported(f"lattice has no bound for EpsilonDeltaDpEvent at unit {accountant.unit}: δ grows to 1")
    return DominatingPair.approx_dp(formulas.up(size * Fraction(epsilon)), grown).as_upper_bound()


def _bounded_range(accountant: Lattice, event: BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent) -> DominatingPair:
    """The adaptive bound for selections of one range (Dong, Durfee and Rogers 2020)."""
    eta = accountant.unit.size * (Fraction(event.eta) + 4 * Fraction(event.rounding))
    return DominatingPair.bounded_range(formulas.up(eta))


def _permute_and_flip(accountant: Lattice, event: PermuteAndFlipDpEvent) -> DominatingPair:
    """That of Laplace noise with the same ε. At each ε two candidates attain it, but at each others do.

    Proof: docs/proofs/selection.md, Theorem 6.
    """
    return DominatingPair.laplace(1.0, noise(event.epsilon, "epsilon") * accountant.unit.size).as_upper_bound()


def _discrete_gaussian(accountant: Lattice, event: DiscreteGaussianDpEvent) -> DominatingPair:
    """Exact for one coordinate and a usual σ; otherwise by its Rényi divergences."""
    sigma, reach = noise(event.sigma, "sigma"), accountant.reach * Fraction(event.sensitivity)
    if not reach:
        return DominatingPair.identity()
    whole = accountant.reach * math.floor(event.sensitivity)  # what a whole number can move by
    if event.dimension == 1 and not whole:
        return DominatingPair.identity()
    if not sigma:
        return DominatingPair.non_private().as_upper_bound()
    if event.dimension == 1 and (whole / 10 <= sigma <= 1e5):
        return DominatingPair.discrete_gaussian(sigma, whole)
    return DominatingPair.concentrated(reach**2 / (2 * Fraction(sigma) ** 2))


def _mixture(accountant: Lattice, event: dp_event.MixtureOfGaussiansDpEvent) -> DominatingPair:
    """Shifts of either sign are bounded by their sizes: no set has more mass under any of them."""
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        raise Unsupported("lattice has no bound for MixtureOfGaussiansDpEvent under replace_one")
    deviation, sizes = noise(event.standard_deviation, "standard_deviation"), [abs(s) for s in event.sensitivities]
    pair = DominatingPair.gaussian_mixture(event.sampling_probs, sizes, deviation)
    return pair if sizes == list(event.sensitivities) else pair.as_upper_bound()


def _poisson(accountant: Lattice, event: dp_event.PoissonSampledDpEvent) -> DominatingPair:
    """Gaussians under all adjacencies, other single mechanisms under add_remove and zero_out.

    Proof: docs/proofs/sampling.md, Theorems 1 and 2.
    """
    rate = float(validate.probability(sampling_probability=event.sampling_probability))
    inner, replaced, size = event.event, accountant.adjacency is Adjacency.REPLACE_ONE, accountant.unit.size
    if not replaced and not accountant.unit.is_group:
        return _sampled(accountant, inner, rate)
    mu = _joint_mu(inner)
    if mu is None:
        where = "at unit " + str(accountant.unit) if accountant.unit.is_group else "under replace_one"
        raise Unsupported(
            f"lattice has no bound for a sampled {type(inner).__name__} {where}, only for a sampled Gaussian"
        )
    if not rate or not mu:
        return DominatingPair.identity()
    drawn, noise_or_none = [float(number) for number in range(size + 1)], 1.0
    if math.isinf(mu):
        mu, noise_or_none = 1.0, 0.0
    shifts = [number * mu for number in drawn]
    return DominatingPair.gaussian_mixture(_binomial(size, rate), shifts, noise_or_none, mirrored=replaced)


def _binomial(size: int, rate: float) -> list[float]:
    """The probabilities that 0, 1, … of `size` records are drawn, each rounded once, none below 1e-290."""
    if size > MAX_GROUP:
        raise Unsupported(f"lattice has a bound for groups of sampled records up to {MAX_GROUP}, not of {size}")
    drawn, left = Fraction(rate), 1 - Fraction(rate)
    exact = (math.comb(size, number) * drawn**number * left ** (size - number) for number in range(size + 1))
    return [max(float(weight), _LEAST_WEIGHT) if weight else 0.0 for weight in exact]


def _sampled(accountant: Lattice, inner: DpEvent, rate: float) -> DominatingPair:
    # A unit's own response is released, so a null record differs from an absent one.
    if any(isinstance(part, dp_event.RandomizedResponseDpEvent) for part in with_inner(inner)):
        raise Unsupported(
            "lattice has no bound for sampled randomised response: a response reveals that its unit was sampled"
        )
    if accountant.adjacency is Adjacency.ZERO_OUT and not _is_noise(inner):
        raise Unsupported(
            f"lattice has no bound for a sampled {type(inner).__name__} under zero_out: its cost is that of a null "
            "record, which is not that of an absent one; use add_remove"
        )
    try:
        return accountant._cost(inner).poisson_sampled(rate)
    except Unsupported:
        raise
    except ValueError as reason:
        raise Unsupported(f"lattice has no bound for a sampled {type(inner).__name__}: {reason}") from None


def _joint_mu(event: DpEvent) -> float | None:
    """μ of Gaussians on one sample for one unit's own contribution; None for any other event, inf without noise."""
    part = Lattice(Adjacency.ADD_REMOVE)
    if isinstance(event, dp_event.GaussianDpEvent) and not event.noise_multiplier:
        return math.inf
    if part.supports(event) is not None:
        return None
    pair = part.compose(event).pair
    return pair.gaussian_mu if pair.tight else None


def _without_replacement(accountant: Lattice, event: dp_event.SampledWithoutReplacementDpEvent) -> DominatingPair:
    """A mechanism on m of n records, where a record of the sample takes the place of another.

    A composition of such releases under replace_one is dominated by the product, not attained.

    Proof: docs/proofs/sampling.md, Theorem 3.
    """
    size = validate.integer(minimum=1, source_dataset_size=event.source_dataset_size)
    sample = validate.integer(sample_size=event.sample_size)
    if sample > size:
        raise ValueError(f"sample_size must be at most source_dataset_size ({size}), not {sample}")
    size -= accountant.removed
    if sample >= size and accountant.adjacency is Adjacency.ADD_REMOVE:
        raise Unsupported(
            "lattice has no bound for a sample of all records under add_remove, where fewer are left without the unit"
        )
    exchanged = _exchanged(accountant, event)
    if not sample:
        return DominatingPair.identity()
    rate, noiseless = sample / size, math.isinf(_joint_mu(event.event) or 0.0)
    if noiseless:
        return DominatingPair.non_private().as_upper_bound()
    if accountant.adjacency is Adjacency.ADD_REMOVE:
        pair = exchanged.poisson_sampled(rate)
    else:
        try:
            pair = exchanged.exchanged_in_samples(rate)
        except ValueError as reason:
            raise Unsupported(f"lattice has no bound for {type(event.event).__name__} on a sample: {reason}") from None
    attained = accountant.adjacency is not Adjacency.ZERO_OUT and _is_noise(event.event, drawn=False)
    return pair if attained else pair.as_upper_bound()


def _exchanged(accountant: Lattice, event: dp_event.SampledWithoutReplacementDpEvent) -> DominatingPair:
    """The pair of what runs on a sample if one of its records is exchanged."""
    if any(isinstance(part, dp_event.RandomizedResponseDpEvent) for part in with_inner(event.event)):
        raise Unsupported(
            "lattice has no bound for randomised response on a sample: a response reveals that its unit was sampled"
        )
    if any(isinstance(part, ParallelDpEvent) for part in with_inner(event.event)):
        raise Unsupported(
            "lattice has no bound for disjoint parts on a sample: what takes a record's place may be in another part"
        )
    if accountant.adjacency is not Adjacency.REPLACE_ONE and not _is_noise(event.event, drawn=False):
        raise Unsupported(
            f"lattice has no bound for {type(event.event).__name__} on a sample under {accountant.adjacency}: a record "
            "takes the place of another there, and its cost is stated for another relation; use replace_one"
        )
    exchange = Lattice(Adjacency.REPLACE_ONE)
    if reason := exchange.supports(event.event):
        raise Unsupported(f"lattice has no bound for {type(event.event).__name__} on a sample: {reason}")
    return exchange.compose(event.event).pair


def _with_replacement(accountant: Lattice, event: dp_event.SampledWithReplacementDpEvent) -> DominatingPair:
    """A Gaussian on m draws from n records with replacement: a record is drawn k times with binomial probability.

    Proof: docs/proofs/sampling.md, Theorem 7.
    """
    size = validate.integer(minimum=1, source_dataset_size=event.source_dataset_size) - accountant.removed
    draws = validate.integer(sample_size=event.sample_size)
    mu = _joint_mu(event.event)
    if mu is None:
        raise Unsupported(f"lattice has no bound for {type(event.event).__name__} on a sample with replacement")
    if not draws or not mu:
        return DominatingPair.identity()
    if math.isinf(mu):
        return DominatingPair.non_private().as_upper_bound()
    if size <= 1:
        if accountant.adjacency is Adjacency.ADD_REMOVE:
            raise Unsupported("lattice has no bound for draws from one record under add_remove: none would be left")
        return DominatingPair.gaussian(1.0, 2 * mu * draws).as_upper_bound()
    weights = _times_drawn(draws, size)
    some = math.fsum(weights[1:])
    parts = [DominatingPair.gaussian(1.0, 2 * mu * times) for times in range(1, len(weights))]
    together, rate = DominatingPair.blend(parts, [w / some for w in weights[1:]]), min(some * (1 + 2.0**-50), 1.0)
    if accountant.adjacency is Adjacency.ADD_REMOVE:
        return together.poisson_sampled(rate).as_upper_bound()
    return together.exchanged_in_samples(rate).as_upper_bound()


def _times_drawn(draws: int, size: int) -> list[float]:
    """The probabilities that one of `size` records is drawn 0, 1, … times, until none is above 1e-290."""
    results = []
    with localcontext(Context(prec=60, Emin=-(10**9), Emax=10**9)):
        weight = (1 - 1 / Decimal(size)) ** draws
        for times in range(draws + 1):
            results.append(max(float(weight), _LEAST_WEIGHT))
            weight = weight * (draws - times) / (times + 1) / (size - 1)
            if weight < _LEAST_WEIGHT and times > draws / size:
                break
    return results


def _truncated(accountant: Lattice, event: TruncatedPoissonSampledDpEvent) -> DominatingPair:
    """Poisson sampling of n units, with batches above the limit B cut to B units, chosen uniformly.

    Proof: docs/proofs/sampling.md, Theorem 4.
    """
    mu = _joint_mu(event.event)
    if mu is None:
        raise Unsupported(f"lattice has no bound for {type(event.event).__name__} on a truncated Poisson sample")
    rate = float(event.sampling_probability)
    if not rate or not mu:
        return DominatingPair.identity()
    if math.isinf(mu):
        return DominatingPair.non_private().as_upper_bound()
    from scipy.stats import binom

    limit = event.max_batch_size
    replaced = accountant.adjacency is Adjacency.REPLACE_ONE
    whole = DominatingPair.gaussian_mixture([1 - rate, rate], [0.0, mu], 1.0, mirrored=replaced)
    if limit >= event.source_dataset_size:  # so it is for fewer
        return whole
    overflow = float(binom.sf(limit - 1, event.source_dataset_size - 1, rate))  # to a relative 1e-9
    overflow = max(overflow, 1e-300)
    cut = DominatingPair.gaussian(1.0, 2 * mu).poisson_sampled(rate * limit / (limit + 1))
    if accountant.adjacency is not Adjacency.ADD_REMOVE:
        cut = DominatingPair.gaussian(1.0, 2 * mu).exchanged_in_samples(rate * limit / (limit + 1))
    others = max(event.source_dataset_size - 1 - accountant.removed, 0)
    rare = float(binom.sf(limit - 1, others, rate))
    chances = [1 - rare * (1 - 1e-9), min(1.0, overflow * (1 + 1e-9))]
    return DominatingPair.blend([whole, cut], chances, rounded_up=True).as_upper_bound()


def _best_of_runs(accountant: Lattice, event: dp_event.RepeatAndSelectDpEvent) -> DominatingPair:
    """The least of what follows from the profile of one run, from its Rényi divergences and from its pure ε.

    Proof: docs/proofs/tuning.md, Theorem 4.
    """
    runs = NumberOfRuns(event.mean, event.shape)
    if runs.is_one:
        return accountant._cost(event.event)
    return _best_of_known_runs(_Tuned(accountant.adjacency, repr(event), event))


@dataclass(frozen=True)
class _Tuned:
    """An event, compared by its text, since some events have lists that do not hash."""

    adjacency: Adjacency
    text: str
    event: dp_event.RepeatAndSelectDpEvent = field(compare=False)


@functools.lru_cache(maxsize=16)
def _best_of_known_runs(tuned: _Tuned) -> DominatingPair:
    event, adjacency = tuned.event, tuned.adjacency
    single = Lattice(adjacency)._cost(event.event)
    if not any(single.alternatives):
        return single
    renyi, basic = RenyiAccountant(adjacency), Basic(adjacency)
    orders, divergence, pure = np.zeros(0), np.zeros(0), math.inf
    if renyi.supports(event) is None:
        cost = renyi.compose(event).cost
        orders, divergence = renyi.orders[cost.certified], cost.divergence[cost.certified]
    if basic.supports(event) is None:
        pure = basic.compose(event).pure().value
    known = curve_of_divergences(orders, divergence, pure)
    return best_of_runs(NumberOfRuns(event.mean, event.shape), single, known, tuned.text)


def _allocation(accountant: Lattice, event: RandomAllocationDpEvent) -> DominatingPair:
    """One of t steps exactly; k of t from above as k independent choices from blocks of ⌊t/k⌋ or ⌈t/k⌉ steps.

    Under replace_one it is the better of a removal and an addition, and of a Gaussian at distance 2 in a known step.

    Proof: docs/proofs/allocation.md, Theorems 1, 4 and 5.
    """
    mu = _joint_mu(event.event)
    selected, steps = event.num_selected, event.num_steps
    if mu is None:
        return _allocation_of_others(accountant, event)
    if not selected or not mu:
        return DominatingPair.identity()
    if math.isinf(mu):
        return DominatingPair.non_private()
    if selected == steps:
        return DominatingPair.gaussian(1.0, mu * accountant.scale).self_compose(steps)
    size, longer = divmod(steps, selected)
    blocks = [
        DominatingPair.gaussian_allocation(1.0, length, mu, drawn=(selected, steps)).self_compose(count)
        for length, count in ((size, selected - longer), (size + 1, longer))
        if count
    ]
    pair = DominatingPair.identity().compose(*blocks)
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        return _replaced(pair.as_upper_bound(), 2 * mu * math.sqrt(selected), repr(event))
    return pair


def _allocation_of_others(accountant: Lattice, event: RandomAllocationDpEvent) -> DominatingPair:
    """A mechanism that is no Gaussian, under add_remove; noise on sums also under zero_out. Otherwise the known steps'.

    Proof: docs/proofs/allocation.md, Theorems 1, 4, 5 and 6.
    """
    known, selected = accountant._of_known_steps(event), event.num_selected
    if selected in (0, event.num_steps):
        return known
    known = known.as_upper_bound()
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        return known
    if accountant.adjacency is Adjacency.ZERO_OUT and not _is_noise(event.event):
        return known
    single, (size, longer) = accountant._cost(event.event), divmod(event.num_steps, selected)
    blocks = [(size, selected - longer), (size + 1, longer)]
    try:
        pairs = [single.allocated(length).self_compose(count) for length, count in blocks if count]
    except (ValueError, ArithmeticError):  # losses that no grid holds
        return known
    pair = DominatingPair.identity().compose(*pairs)
    return pair if selected == 1 else pair.as_upper_bound()


def _replaced(pair: DominatingPair, mu: float, label: str) -> DominatingPair:
    """The least profile of a removal and then an addition, and of a Gaussian."""
    law = pair.chained(2).alternatives[0][0][0].remove
    farthest = gaussian_curve.epsilon(mu, 1e-25).upper
    high = max(law.support(0.0, 0.0)[1], min(farthest, 650.0))

    def curve(losses: Floats) -> Floats:
        return np.minimum(law.hockey_stick_upper(losses), gaussian_curve.deltas(mu * (1 + 2.0**-50), losses)[1])

    result = DominatingPair.profile(curve, low=-high, high=high, label=f"replaced({label})")
    result.alternatives[0][0][0].remove.dominating_mu = mu * (1 + 2.0**-50)
    return result


def _non_private(accountant: Lattice, event: dp_event.NonPrivateDpEvent) -> DominatingPair:
    return DominatingPair.non_private()


_COMPOSITIONS = (dp_event.NoOpDpEvent, dp_event.SelfComposedDpEvent, dp_event.ComposedDpEvent)
_NOISE = (
    dp_event.GaussianDpEvent,
    dp_event.LaplaceDpEvent,
    dp_event.DiscreteLaplaceDpEvent,
    dp_event.SingleEpochTreeAggregationDpEvent,
    DiscreteGaussianDpEvent,
)
"""Noise on a sum, whose cost follows from how far a record moves the sum."""


def _is_noise(event: DpEvent, *, drawn: bool = True) -> bool:
    """Whether an event is noise on sums, alone, composed, or, if `drawn`, on Poisson samples."""
    kinds = (*_COMPOSITIONS, *_NOISE, *((dp_event.PoissonSampledDpEvent,) if drawn else ()))
    return all(isinstance(part, kinds) for part in with_inner(event))


_OF_GROUPS = (
    *_COMPOSITIONS,
    dp_event.GaussianDpEvent,
    dp_event.LaplaceDpEvent,
    dp_event.DiscreteLaplaceDpEvent,
    dp_event.RandomizedResponseDpEvent,
    dp_event.ZCDpEvent,
    dp_event.PoissonSampledDpEvent,
    dp_event.NonPrivateDpEvent,
    PermuteAndFlipDpEvent,
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    BoundedRangeSelectionDpEvent,
    ExPostSelectionDpEvent,
)
"""Events whose handlers know the size of a group."""

Lattice.handlers = {
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.LaplaceDpEvent: _laplace,
    dp_event.DiscreteLaplaceDpEvent: _discrete_laplace,
    dp_event.RandomizedResponseDpEvent: _randomized_response,
    dp_event.ZCDpEvent: _zcdp,
    dp_event.MixtureOfGaussiansDpEvent: _mixture,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.SampledWithoutReplacementDpEvent: _without_replacement,
    dp_event.SampledWithReplacementDpEvent: _with_replacement,
    PermuteAndFlipDpEvent: _permute_and_flip,
    DiscreteGaussianDpEvent: _discrete_gaussian,
    dp_event.RepeatAndSelectDpEvent: _best_of_runs,
    dp_event.NonPrivateDpEvent: _non_private,
    TruncatedPoissonSampledDpEvent: _truncated,
    RandomAllocationDpEvent: _allocation,
    EpsilonDeltaDpEvent: _epsilon_delta,
    BoundedRangeSelectionDpEvent: _bounded_range,
    ExPostSelectionDpEvent: _bounded_range,
}
