"""Dominating pairs: the worst pair of output laws of a mechanism, with certified bounds on ε, δ, the trade-off and
more.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice import allocation, components, gaussian_curve, sampling
from dpassay.accounting.lattice.chains import chain_curve
from dpassay.accounting.lattice.components import DIRECTIONS, Component
from dpassay.accounting.lattice.enclosure import Enclosure
from dpassay.accounting.lattice.laws import Blend, Law
from dpassay.accounting.lattice.products import (
    Composition,
    below,
    distinct,
    dominated_epsilon,
    enclosure_of,
    factor_of,
    key_of,
    merged,
    mu_of,
    simple_delta,
    simple_epsilon,
    simple_least_epsilon,
    zcdp_epsilon,
)
from dpassay.accounting.lattice.single_law import SingleLaw
from dpassay.base import validate
from dpassay.base.arrays import Floats

WIDTH = 1e-3
FINEST = 1e-6
"""The narrowest width that is tried before a limit inside an interval counts as not met."""

_MOST_BATCHES = 10**12  # of which the law of the largest sum is known to enough digits

_beyond_float64 = np.errstate(all="ignore")
"""Far from the loss of interest e^x may leave float64. NaN is never used as a bound, so NumPy need not warn."""


class WidthNotMet(UserWarning):
    """A certified interval is wider than requested."""


class DominatingPair:
    """The worst output laws (P, Q) of neighbours, with one privacy-loss distribution per direction, never symmetrised.

    (P, Q) dominates a mechanism if H_t(P‖Q) ≥ H_t(M(D)‖M(D′)) for all t ≥ 0 and all neighbours, H the hockey-stick
    divergence. Products of dominating pairs dominate adaptive compositions (Zhu, Dong and Wang 2022, Theorem 10).
    Direction "remove" is P over Q (the data set with the unit over the one without), "add" is Q over P. Questions are
    answered for the worse direction unless one is named.

    Every answer is an `Interval` that contains the exact value for the pair, with discretisation, truncation and
    rounding included. If `tight` is true, some neighbours attain the pair, and the interval contains the mechanism's
    own value. Otherwise only the upper end is a bound for the mechanism.

    A pair may hold alternatives, of which the worst counts: disjoint parts, one of which contains the unit.

    Proof: docs/proofs/lattice.md, Theorems 1 to 7.
    """

    def __init__(self, alternatives: Sequence[Composition]) -> None:
        self.alternatives = tuple(alternatives)
        self._enclosures: dict[object, Enclosure | SingleLaw] = {}  # that whole curves are asked of

    # --- constructors

    @staticmethod
    def of(
        remove: Law, add: Law | None = None, *, label: str, tight: bool = True, symmetric: bool = False
    ) -> DominatingPair:
        """A pair from laws.

        Args:
            remove, add: the laws; `add` is by default the other direction of `remove`.
            label: equal labels mean equal pairs.
            tight: some neighbours attain the laws.
            symmetric: both directions have the same law.
        """
        component = components.of_laws(remove, add, label=label, tight=tight, symmetric=symmetric)
        return DominatingPair._of(component)

    @staticmethod
    def _of(component: Component | None) -> DominatingPair:
        return DominatingPair([((component, 1),) if component else ()])

    @staticmethod
    def identity() -> DominatingPair:
        """The pair of a mechanism that reveals nothing."""
        return DominatingPair([()])

    @staticmethod
    def non_private() -> DominatingPair:
        """The pair of a mechanism that reveals everything."""
        return DominatingPair.finite(np.array([1.0, 0.0]), np.array([0.0, 1.0]))

    @staticmethod
    def gaussian(noise_multiplier: float, sensitivity: float = 1.0) -> DominatingPair:
        """N(sensitivity, noise_multiplier²) against N(0, noise_multiplier²); not private without noise."""
        return DominatingPair._noisy(
            noise_multiplier, sensitivity, lambda: components.gaussian(sensitivity / noise_multiplier)
        )

    @staticmethod
    def gaussian_allocation(
        noise_multiplier: float, steps: int, sensitivity: float = 1.0, *, drawn: tuple[int, int] | None = None
    ) -> DominatingPair:
        """Gaussian noise in each of `steps` steps, in exactly one of which the unit takes part, chosen uniformly.

        The exact curve is enclosed by those of two pairs. Beyond 10⁶ steps, or if the sensitivity is more than 25
        standard deviations of the noise, there are only upper bounds: those of fewer steps, or of one.

        Args:
            noise_multiplier: standard deviation of the noise of each step.
            steps: how many, at least 1.
            sensitivity: of one step.
            drawn: (k, t), if this is one of k such blocks that bound k of t steps from above. From below they are
                bounded by the sum of all steps.
        """
        validate.integer(minimum=1, steps=steps)
        whole = DominatingPair.gaussian(noise_multiplier, sensitivity)
        mu = whole.gaussian_mu
        if not mu or (steps == 1 and drawn in (None, (1, 1))):  # without noise the step of the unit is seen
            return whole
        if steps == 1 or mu > allocation.LARGEST_MU:
            return whole.as_upper_bound()
        return DominatingPair._of(components.gaussian_allocation(mu, steps, drawn))

    @staticmethod
    def gaussian_shuffle(
        noise_multiplier: float, batches: int, sensitivity: float = 1.0, *, exchanged: bool = False
    ) -> DominatingPair:
        """Gaussian noise on the sum of each of `batches` shuffled batches.

        From above it is the Gaussian of the one batch that has the unit. From below, what an adversary attains who
        knows all other records, of which each has −1 where the unit has 1: by the largest sum or by all sums together.

        Args:
            noise_multiplier: standard deviation of the noise of each batch.
            batches: of an epoch, at least 1. Beyond 10¹² there is only the upper bound.
            sensitivity: the norm of a unit's contribution.
            exchanged: the unit is exchanged for another one, and not for a null record.

        Proof: docs/proofs/sampling.md, Theorem 8.
        """
        validate.integer(minimum=1, batches=batches)
        moved = (2 if exchanged else 1) * sensitivity
        whole = DominatingPair.gaussian(noise_multiplier, moved)
        mu = whole.gaussian_mu
        if batches == 1 or not mu:
            return whole
        if batches > _MOST_BATCHES:
            return whole.as_upper_bound()
        second = 0.0 if exchanged else mu
        return DominatingPair._of(components.gaussian_shuffle(mu, second + mu, second, batches))

    @staticmethod
    def laplace(noise_multiplier: float, sensitivity: float = 1.0) -> DominatingPair:
        """Laplace noise of scale `noise_multiplier` on a number of the given sensitivity."""
        return DominatingPair._noisy(
            noise_multiplier, sensitivity, lambda: components.laplace(noise_multiplier, sensitivity)
        )

    @staticmethod
    def _noisy(noise_multiplier: float, sensitivity: float, component: Callable[[], Component]) -> DominatingPair:
        validate.non_negative(noise_multiplier=noise_multiplier)
        validate.non_negative(sensitivity=sensitivity)
        if not sensitivity:
            return DominatingPair.identity()
        if not noise_multiplier:
            return DominatingPair.non_private()
        if math.isinf(sensitivity / noise_multiplier):  # losses beyond float64 count as infinite: an upper bound only
            return DominatingPair.non_private().as_upper_bound()
        return DominatingPair._of(component())

    @staticmethod
    def discrete_gaussian(sigma: float, sensitivity: int = 1) -> DominatingPair:
        """Noise on the integers with p(x) ∝ e^{−x²/(2σ²)} (Canonne, Kamath and Steinke 2020).

        Args:
            sigma: σ, at most 1e5 and at least 1/10 of the sensitivity.
            sensitivity: of the sum, a whole number.
        """
        validate.positive(sigma=sigma)
        validate.integer(sensitivity=sensitivity)
        return DominatingPair._of(components.discrete_gaussian(sigma, sensitivity) if sensitivity else None)

    @staticmethod
    def discrete_laplace(parameter: float, sensitivity: int = 1) -> DominatingPair:
        """Noise on the integers with p(x) ∝ e^{−a|x|}, a = `parameter`: the loss is a(2j − Δ) for some j = 0…Δ."""
        validate.non_negative(parameter=parameter)
        validate.integer(sensitivity=sensitivity)
        if sensitivity and not parameter:  # a = 0 is not a law; it counts as no protection
            return DominatingPair.non_private()
        return DominatingPair._of(components.discrete_laplace(parameter, sensitivity) if sensitivity else None)

    @staticmethod
    def approx_dp(epsilon: float, delta: float = 0.0) -> DominatingPair:
        """The pair that dominates every (ε, δ)-DP mechanism (Kairouz, Oh and Viswanath 2015).

        With probability δ everything is revealed, otherwise one bit by randomised response at ε.
        """
        validate.non_negative(epsilon=epsilon)
        validate.probability(delta=delta)
        return DominatingPair._of(components.approx_dp(epsilon, delta))

    @staticmethod
    def concentrated(rho: Fraction | float, xi: Fraction | float = 0) -> DominatingPair:
        """Any mechanism whose Rényi divergence of every order α > 1 is at most ξ + ρα, in both directions.

        Only its upper bounds are known: the least δ(ε) over the orders.

        Source: Canonne, Kamath and Steinke (2020).
        """
        for name, value in (("rho", rho), ("xi", xi)):
            validate.non_negative(**{name: float(value)})
        return DominatingPair._of(components.concentrated(Fraction(rho), Fraction(xi)) if rho or xi else None)

    @staticmethod
    def bounded_range(eta: float) -> DominatingPair:
        """One selection whose log-ratio between neighbours stays in an interval of length η (Durfee and Rogers 2019).

        Only its upper bounds are known. Selections of one η compose by their adaptive bound (Dong, Durfee and Rogers
        2020), see `dpassay.accounting.selection.bounded_range`; the product of worst single selections would be larger.
        """
        validate.non_negative(eta=eta)
        return DominatingPair._of(components.bounded_range(eta) if eta else None)

    @staticmethod
    def gaussian_mixture(
        weights: Sequence[float], sensitivities: Sequence[float], standard_deviation: float, *, mirrored: bool = False
    ) -> DominatingPair:
        """Σ w_k N(s_k, σ²) against N(0, σ²), or, if `mirrored`, against Σ w_k N(−s_k, σ²).

        Args:
            weights: w_k ≥ 0 with sum 1 (to 1e-9; they are normalised).
            sensitivities: s_k ≥ 0, as many.
            standard_deviation: σ ≥ 0, in the unit of the sensitivities.
            mirrored: the pair of a Poisson sample under replace_one.
        """
        validate.non_negative(standard_deviation=standard_deviation)
        component = components.gaussian_mixture(weights, sensitivities, standard_deviation, mirrored=mirrored)
        return DominatingPair._of(component)

    @staticmethod
    def finite(p: Sequence[float] | Floats, q: Sequence[float] | Floats) -> DominatingPair:
        """Two probability vectors over the same outcomes, each with sum 1 (to 1e-9; they are normalised)."""
        return DominatingPair._of(components.finite(p, q))

    @staticmethod
    def profile(
        remove: Callable[[Floats], Floats],
        add: Callable[[Floats], Floats] | None = None,
        *,
        low: float,
        high: float,
        label: str | None = None,
    ) -> DominatingPair:
        """An upper bound on the whole privacy profile, to compose with other pairs.

        Args:
            remove: vectorised, increasing ε of either sign ↦ an upper bound on δ(ε), at least (1 − e^ε)⁺.
            add: the same for the other direction; by default equal to `remove`.
            low, high: the range of ε on which the lattice evaluates the curve; beyond `high` it counts as constant.
            label: equal labels mean equal curves.
        """
        return DominatingPair._of(components.profile(remove, add, low=low, high=high, label=label))

    @staticmethod
    def blend(pairs: Sequence[DominatingPair], weights: Sequence[float], *, rounded_up: bool = False) -> DominatingPair:
        """One of several mechanisms runs, chosen with public probabilities, and the choice is released.

        Args:
            pairs: single mechanisms.
            weights: their probabilities; the sum is 1 (to 1e-9; they are normalised).
            rounded_up: the weights are upper bounds on the probabilities and are not normalised. The blend then has
                upper bounds only.

        Raises:
            ValueError: if an argument is invalid, or a pair is a composition.
        """
        total = math.fsum(weights)
        least, most = 1 - 1e-9, math.inf if rounded_up else 1 + 1e-9
        if len(pairs) != len(weights) or not pairs or min(weights) < 0 or not least <= total <= most:
            raise ValueError("a blend needs one weight per pair, each at least 0, with sum 1")
        if not rounded_up and total != 1:
            weights = [weight / total for weight in weights]
        parts = [(pair._single(), float(weight)) for pair, weight in zip(pairs, weights, strict=True) if weight > 0]
        chances = [weight for _, weight in parts]
        remove, add = (
            Blend([getattr(part, side) for part, _ in parts], chances, rounded_up=rounded_up) for side in DIRECTIONS
        )
        label = f"blend({[(part.label, weight) for part, weight in parts]!r}, {rounded_up})"
        tight = all(part.tight for part, _ in parts) and not rounded_up
        tight_alone = any(part.tight_alone for part, _ in parts)
        symmetric = all(part.symmetric or part.remove is part.add for part, _ in parts)
        if any(part.below is not None for part, _ in parts):
            tight = False  # nobody asks for the lower bounds of a blend of enclosed pairs
        log_factor = max(part.log_factor for part, _ in parts)
        return DominatingPair._of(
            Component(remove, add, label, None, tight, tight_alone, symmetric, log_factor=log_factor)
        )

    # --- composition

    def compose(self, *others: DominatingPair) -> DominatingPair:
        """The product with other pairs: adaptive composition."""
        total: list[Composition] = list(self.alternatives)
        for other in others:
            total = distinct([merged((*a, *b)) for a, b in itertools.product(total, other.alternatives)])
        return DominatingPair(total)

    def self_compose(self, count: int) -> DominatingPair:
        """`count` runs. Of alternatives the same one repeats, since the unit stays in its part."""
        validate.integer(count=count)
        if not count:
            return DominatingPair.identity()
        return DominatingPair([tuple((part, n * count) for part, n in each) for each in self.alternatives])

    @staticmethod
    def parallel(pairs: Sequence[DominatingPair], *, single: bool) -> DominatingPair:
        """Mechanisms on disjoint parts.

        Args:
            pairs: one per part.
            single: only one part changes, so the worst part counts. Otherwise a unit may leave one part and enter
                another, so the worst two parts count, in any directions; the result is then an upper bound only.

        Raises:
            ValueError: if there is no part.
        """
        if not pairs:
            raise ValueError("a parallel composition needs at least one part")
        if single or len(pairs) == 1:
            return DominatingPair(distinct([each for pair in pairs for each in pair.alternatives]))
        twice: dict[object, list[DominatingPair]] = {}  # at most two of equal parts matter
        for pair in pairs:
            twice.setdefault(tuple(key_of(each) for each in pair.alternatives), []).append(pair)
        few = [pair for group in twice.values() for pair in group[:2]]
        moves: list[DominatingPair] = []
        for first, second in itertools.combinations(few, 2):
            moves.append(first.compose(second))
            if not (first._symmetric or second._symmetric):
                moves += [first.compose(second.reversed()), first.reversed().compose(second)]
        return DominatingPair(distinct([each for move in moves for each in move.alternatives])).as_upper_bound()

    @property
    def _symmetric(self) -> bool:
        return all(part.symmetric or part.remove is part.add for each in self.alternatives for part, _ in each)

    def reversed(self) -> DominatingPair:
        """This pair with its directions exchanged."""

        def reversed_part(part: Component) -> Component:
            if part.symmetric or part.remove is part.add:
                return part
            under = None if part.below is None else reversed_part(part.below)
            return replace(part, remove=part.add, add=part.remove, label=f"reversed({part.label})", below=under)

        return DominatingPair(
            [tuple((reversed_part(part), count) for part, count in each) for each in self.alternatives]
        )

    def poisson_sampled(self, rate: float) -> DominatingPair:
        """The pair on a Poisson sample in which the unit takes part with probability `rate`.

        For adding or removing a unit, or replacing it by a null record; replacing it by another record gives another
        pair. Several mechanisms on one sample are one mechanism, not a composition of sampled ones: their product is
        bounded from above, and so is a mechanism of which only a bound on its curve is known.

        Args:
            rate: in [0, 1].

        Source: Zhu, Dong and Wang (2022), Theorem 11.
        """
        validate.probability(rate=rate)
        if rate == 0 or not any(self.alternatives):
            return DominatingPair.identity()
        if rate == 1:
            return self
        return self._each(lambda composition: sampling.poisson_sampled(composition, rate))

    def _each(self, change: Callable[[Composition], Component | None]) -> DominatingPair:
        """Every alternative as one component, or as nothing."""
        changed = [change(each) if each else None for each in self.alternatives]
        return DominatingPair(distinct([() if each is None else ((each, 1),) for each in changed]))

    def allocated(self, steps: int) -> DominatingPair:
        """The pair if this runs in one of `steps` steps, chosen uniformly and independently of all other units.

        For adding or removing a unit, or replacing it by a null record.

        Args:
            steps: at least 1.

        Raises:
            ValueError: if the losses of one step fit no grid.

        Proof: docs/proofs/allocation.md, Theorems 1 and 6.
        """
        validate.integer(minimum=1, steps=steps)
        if steps == 1:
            return self
        return self._each(lambda composition: sampling.allocated(composition, steps))

    def exchanged_in_samples(self, rate: float) -> DominatingPair:
        """The pair if a record of a sample is exchanged with probability `rate`, given that of an exchange, this one.

        At t ≥ 1 the curve is that of a Poisson sample, and below its mirror image.

        Args:
            rate: in [0, 1].

        Raises:
            ValueError: if the two directions of this pair differ.

        Proof: docs/proofs/sampling.md, Theorem 3.
        """
        validate.probability(rate=rate)
        if rate == 1 or not any(self.alternatives):
            return self
        if not self._symmetric:
            raise ValueError("a pair for an exchange has the same curve in both directions")
        if not rate:
            return DominatingPair.identity()
        return self._each(lambda composition: sampling.exchanged(composition, rate))

    def chained(self, size: int) -> DominatingPair:
        """An upper bound on the pair of `size` units that change together, one after the other, in any directions.

        δ(ε) is at most δ₁(ε/k)(e^ε − 1)/(e^{ε/k} − 1), δ₁ that of one unit in its worse direction.

        Args:
            size: k ≥ 1.

        Raises:
            ValueError: if a unit is revealed completely.

        Proof: docs/proofs/groups.md, Theorem 1.
        """
        validate.integer(minimum=1, size=size)
        if size == 1 or not any(self.alternatives):
            return self

        curve, high = chain_curve(lambda losses: self.privacy_profile(losses)[1], size)
        labels = [key_of(each) for each in self.alternatives]
        return DominatingPair.profile(curve, low=-high, high=high, label=f"chained({labels!r}, {size})")

    def _single(self) -> Component:
        if len(self.alternatives) != 1 or len(self.alternatives[0]) != 1:
            raise ValueError("only a single mechanism can be sampled or blended, not a composition")
        part, count = self.alternatives[0][0]
        if count == 1:
            return part
        if part.mu is not None:
            return components.gaussian(part.mu * math.sqrt(count))
        raise ValueError("only a single mechanism can be sampled or blended, not a composition")

    @property
    def tight(self) -> bool:
        """Whether neighbours attain the pair, so that the intervals contain the mechanism's own value."""
        for each in self.alternatives:
            single = len(each) == 1 and each[0][1] == 1
            if not all(part.tight and (single or not part.tight_alone) for part, _ in each):
                return False
        return True

    @property
    def symmetric(self) -> bool:
        """Whether both directions have the same law, so that one answers for both."""
        selections = any(part.selection_eta is not None for each in self.alternatives for part, _ in each)
        return self._symmetric and not selections

    @property
    def gaussian_mu(self) -> float | None:
        """μ if the pair is N(μ, 1) against N(0, 1), 0 for the identity, None for any other."""
        return mu_of(self.alternatives[0]) if len(self.alternatives) == 1 else None

    def as_upper_bound(self) -> DominatingPair:
        """This pair, no longer claimed to be attained by neighbours."""
        return DominatingPair(
            [
                tuple((replace(part, tight=False, below=None, tested=False), count) for part, count in each)
                for each in self.alternatives
            ]
        )

    # --- questions

    def epsilon(self, delta: float, *, direction: str | None = None, width: float = WIDTH) -> Interval:
        """The least ε ≥ 0 at which (ε, δ)-DP holds.

        Args:
            delta: in (0, 1).
            direction: "remove", "add", or None for the worse of both.
            width: the requested relative width, (upper − lower)/upper. If it is not met, `WidthNotMet` is warned.
        """
        validate.open_probability(delta=delta)

        def ask(composition: Composition, side: str, width: float, target: float | None) -> tuple[Interval, bool]:
            if (mu := mu_of(composition)) is not None:
                result = gaussian_curve.epsilon(mu, delta)
                if math.isinf(result.upper):  # a δ near the end of float64
                    result = Interval(result.lower, simple_epsilon(composition, delta))
                return result, True
            return ask_laws(composition, side, width, target, delta / factor_of(composition))

        def ask_laws(
            composition: Composition, side: str, width: float, target: float | None, delta: float
        ) -> tuple[Interval, bool]:
            known = zcdp_epsilon(composition, delta)
            if 600 < known < math.inf:  # too large for a lattice
                return Interval(0.0, known), True
            enclosure = enclosure_of(composition, side, target=target)
            if enclosure.infinity_mass(-1) > delta:
                bound = min(known, dominated_epsilon(composition, delta))
                return Interval(bound, bound), True
            result, met = enclosure.epsilon(delta, width)
            lower, upper = result.lower, min(result.upper, known)
            if enclosure.wide and target is None:
                upper = min(upper, simple_epsilon(composition, delta), dominated_epsilon(composition, delta))
                lower = max(lower, simple_least_epsilon(composition, delta, side))
                met = met or upper - lower <= width * upper < math.inf
            return Interval(min(max(lower, 0.0), max(upper, 0.0)), max(upper, 0.0)), met

        return self._worst(ask, direction, width)

    def delta(self, epsilon: float, *, direction: str | None = None, width: float = WIDTH) -> Interval:
        """The least δ at which (ε, δ)-DP holds: sup_E P(E) − e^ε Q(E), for ε of either sign."""
        validate.finite(epsilon=epsilon)

        def ask(composition: Composition, side: str, width: float, target: float | None) -> tuple[Interval, bool]:
            if (mu := mu_of(composition)) is not None:
                return gaussian_curve.delta(mu, epsilon), True
            if epsilon >= 0:
                result, met = enclosure_of(composition, side, target=target).delta(epsilon, width)
                result = _times(result, factor_of(composition))
                if (not met or not result.lower) and (upper := simple_delta(composition, epsilon)) < result.upper:
                    result = Interval(min(result.lower, upper), upper)
                return result, met
            # δ_{P‖Q}(ε) = 1 − e^ε + e^ε δ_{Q‖P}(−ε)
            other, met = enclosure_of(composition, _other(side)).delta(-epsilon, width)
            other = _times(other, factor_of(composition))
            low, high = (-math.expm1(epsilon) + math.exp(epsilon) * end for end in (other.lower, other.upper))
            return Interval(max(0.0, low * (1 - 2**-48)), min(1.0, high * (1 + 2**-48))), met

        return self._worst(ask, direction, width)

    def blowup(self, p: float, *, direction: str | None = None, width: float = WIDTH) -> Interval:
        """B(p) = sup{P(E): Q(E) ≤ p} = min_ε [e^ε p + δ(ε)]."""
        validate.probability(p=p)

        def ask(composition: Composition, side: str, width: float, target: float | None) -> tuple[Interval, bool]:
            if (mu := mu_of(composition)) is not None:
                return gaussian_curve.blowup(mu, p), True
            enclosure = enclosure_of(composition, side, target=target)
            if p in (0.0, 1.0):
                ends = Interval(enclosure.infinity_mass(-1), enclosure.infinity_mass(1))
                return (Interval(1.0, 1.0) if p else _times(ends, factor_of(composition))), True
            result, met = enclosure.blowup(p, width)
            if not met:  # without a lower end, nothing says when a lattice is fine enough
                result = Interval(result.lower, min(result.upper, float(enclosure.blowups(np.array([p]))[1][0])))
            return _times(result, factor_of(composition)), met

        result = self._worst(ask, direction, width)
        if self.tight or result.upper < 1:
            return result
        high = float(self._blowups_by_profile(np.array([p]), direction)[0])
        return Interval(result.lower, max(result.lower, high))

    def _blowups_by_profile(self, points: Floats, direction: str | None) -> Floats:
        """Upper bounds on B(p) at each p by e^ε p + δ(ε) at some ε, where a lattice for a level says nothing.

        Without the mass that Q has far out, there may be no lattice that is made for p.
        """
        epsilons = np.concatenate([np.linspace(0, 1, 9), np.geomspace(1, 32, 33)[1:]])
        deltas = self.privacy_profile(epsilons, direction)[1]
        lines = np.exp(epsilons)[:, None] * points + deltas[:, None]
        return np.asarray(np.minimum(lines.min(axis=0) * (1 + 2**-48), 1.0))

    def beta(self, alpha: float, *, direction: str | None = None, width: float = WIDTH) -> Interval:
        """The least type II error at type I error `alpha`, 1 − B(α); the worse direction has the smaller one."""
        validate.probability(alpha=alpha)
        power = self.blowup(alpha, direction=direction, width=width)
        return Interval(max(0.0, (1 - power.upper) - 2**-53), min(1.0, (1 - power.lower) + 2**-53))

    def advantage(self, *, width: float = WIDTH) -> Interval:
        """The largest advantage of a membership test, power minus type I error: δ(0), the total variation."""
        return self.delta(0.0, width=width)

    def bayes_risk(self, prior: float, *, direction: str | None = None, width: float = WIDTH) -> Interval:
        """The least error probability of a test if P has prior probability π = `prior`: π(1 − δ(log((1 − π)/π)))."""
        validate.probability(prior=prior)
        if prior in (0.0, 1.0):
            return Interval(0.0, 0.0)
        result = self.delta(math.log1p(-prior) - math.log(prior), direction=direction, width=width)
        low, high = (prior * (1 - end) for end in (result.upper, result.lower))
        # An error of ε changes 1 − δ by at most that much, relatively.
        room = 2**-48 * (1 - math.log(min(prior, 1 - prior)))
        return Interval(max(0.0, low * (1 - room)), min(1.0, high * (1 + room)))

    def mu(self, delta: float, *, width: float = WIDTH) -> Interval:
        """The least μ ≥ 0 with δ(ε) ≤ max(δ_μ(ε), δ) for all ε ≥ 0, in both directions.

        δ_μ is the curve of N(μ, 1) against N(0, 1). Without a δ > 0, outcomes of negligible probability would decide:
        the μ of a sampled Gaussian would be √n/σ.
        """
        validate.open_probability(delta=delta)
        validate.positive(width=width)
        ends = []
        for composition in self.alternatives:
            if (mu := mu_of(composition)) is not None:
                largest = gaussian_curve.delta(mu, 0.0)  # if δ(0) ≤ δ, μ = 0 is enough
                least = mu * (1 - 2**-49) if largest.lower > delta else 0.0
                ends.append((least, mu * (1 + 2**-49) if largest.upper > delta else 0.0))
                continue
            bound = DominatingPair([composition]).epsilon(delta)
            if not math.isfinite(bound.upper):
                return Interval(math.inf if math.isinf(bound.lower) else 0.0, math.inf)
            for side in DIRECTIONS:
                ends.append(
                    gaussian_curve.envelope(self._profile_of(composition, side), max(bound.upper, 1e-6), delta, width)
                )
        worst = Interval(max(low for low, _ in ends), max(high for _, high in ends))
        enclosed = any(below(composition) is not None for composition in self.alternatives)
        if not any(map(_is_tested, self.alternatives)):
            self._warn(worst, max(width, WIDTH) if enclosed else width, 3)
        return worst

    def privacy_profile(self, epsilons: Floats, direction: str | None = None) -> tuple[Floats, Floats]:
        """Lower and upper bounds on δ(ε) at each ε (float64, one dimension, either sign), from a few lattices."""
        points = np.asarray(epsilons, dtype=np.float64)

        def ask(composition: Composition, side: str) -> tuple[Floats, Floats]:
            if (mu := mu_of(composition)) is not None:
                if mu == 0:
                    trivial = np.maximum(-np.expm1(points), 0.0)
                    return trivial * (1 - 2**-50), np.minimum(trivial * (1 + 2**-50), 1.0)
                return gaussian_curve.deltas(mu, points)
            low, high = np.zeros(points.size), np.ones(points.size)
            for sign, which in ((1, side), (-1, _other(side))):
                chosen = points >= 0 if sign > 0 else points < 0
                if not chosen.any():
                    continue
                key = (key_of(composition), which)
                if key not in self._enclosures:
                    self._enclosures[key] = enclosure_of(composition, which)
                under, over = self._enclosures[key].profile(np.abs(points[chosen]))
                under, over = under * factor_of(composition), over * factor_of(composition)
                if sign < 0:
                    scale = np.exp(points[chosen])
                    under, over = (1 - scale * (1 - each) for each in (under, over))
                    under, over = under - 2**-48, over + 2**-48
                low[chosen], high[chosen] = np.clip(under, 0, 1), np.clip(over, 0, 1)
            return low, high

        return self._worst_arrays(ask, direction)

    def blowups(self, ps: Floats, direction: str | None = None) -> tuple[Floats, Floats]:
        """Lower and upper bounds on B(p) at each p in (0, 1) (float64, one dimension), from a few lattices."""
        points = np.asarray(ps, dtype=np.float64)
        if not ((points > 0) & (points < 1)).all():
            raise ValueError("every p must be strictly between 0 and 1")

        def ask(composition: Composition, side: str) -> tuple[Floats, Floats]:
            if (mu := mu_of(composition)) is not None:
                results = [gaussian_curve.blowup(mu, float(point)) for point in points]
                return np.array([each.lower for each in results]), np.array([each.upper for each in results])
            low, high = enclosure_of(composition, side).blowups(points)
            return low * factor_of(composition), np.minimum(high * factor_of(composition), 1.0)

        low, high = self._worst_arrays(ask, direction)
        if self.tight or (high < 1).all():
            return low, high
        return low, np.maximum(low, np.minimum(high, self._blowups_by_profile(points, direction)))

    def trade_off(self, alphas: Floats, direction: str | None = None) -> tuple[Floats, Floats]:
        """Lower and upper bounds on the type II error β at each type I error in (0, 1)."""
        low, high = self.blowups(alphas, direction)
        return np.maximum(1 - high - 2**-53, 0.0), np.minimum(1 - low + 2**-53, 1.0)

    @_beyond_float64
    def _worst(
        self,
        ask: Callable[[Composition, str, float, float | None], tuple[Interval, bool]],
        direction: str | None,
        width: float,
    ) -> Interval:
        validate.positive(width=width)
        ask = self._asking_both(ask)
        results: list[tuple[Interval, bool]] = []
        for each, side in itertools.product(self.alternatives, self._sides(direction)):
            if not results:
                results.append(ask(each, side, width, None))
                continue
            # Lower bounds of the others decide what is computed exactly, never the width: otherwise a narrower request
            # might have a wider answer.
            least = max(known.lower for known, _ in results)
            answer, met = ask(each, side, width, least)
            if answer.upper <= least:
                met = True  # it is not the worst, so its width does not matter
            elif not met:
                answer, met = ask(each, side, width, None)
            results.append((answer, met))
        worst = Interval(max(each.lower for each, _ in results), max(each.upper for each, _ in results))
        if not all(met for _, met in results):
            self._warn(worst, width, 4)
        return worst

    def _profile_of(self, composition: Composition, side: str) -> Callable[[Floats], tuple[Floats, Floats]]:
        """Maps each ε ≥ 0 to bounds on δ."""
        over, under = enclosure_of(composition, side).profile, below(composition) if self.tight else None
        factor = factor_of(composition)
        if under is None:
            return over if factor == 1 else lambda epsilons: (over(epsilons)[0], over(epsilons)[1] * factor)
        least, least_factor = enclosure_of(under, side).profile, factor_of(under)

        def profile(epsilons: Floats) -> tuple[Floats, Floats]:
            high = np.minimum(over(epsilons)[1] * factor, 1.0)
            return np.minimum(least(epsilons)[0] * least_factor, high), high

        return profile

    def _asking_both(
        self, ask: Callable[[Composition, str, float, float | None], tuple[Interval, bool]]
    ) -> Callable[[Composition, str, float, float | None], tuple[Interval, bool]]:
        """The question, with the lower end from the pairs below, where parts are only known to lie between two pairs.

        These are some .1 % apart, so narrower requests cost no more time.
        """

        def asked(composition: Composition, side: str, width: float, target: float | None) -> tuple[Interval, bool]:
            under = below(composition) if self.tight else None
            if under is None:
                return ask(composition, side, width, target)
            width = max(width, WIDTH)
            answer, met = ask(composition, side, width / 4, target)
            if target is not None and answer.upper <= target:
                return answer, met
            least = ask(under, side, width / 4, None)[0].lower
            result = Interval(min(least, answer.upper), answer.upper)
            return result, result.upper - result.lower <= width * result.upper or _is_tested(composition)

        return asked

    def _asking_both_arrays(
        self, ask: Callable[[Composition, str], tuple[Floats, Floats]]
    ) -> Callable[[Composition, str], tuple[Floats, Floats]]:
        def asked(composition: Composition, side: str) -> tuple[Floats, Floats]:
            low, high = ask(composition, side)
            under = below(composition) if self.tight else None
            return (low if under is None else np.minimum(ask(under, side)[0], high)), high

        return asked

    def _sides(self, direction: str | None) -> tuple[str, ...]:
        """The directions to compute: only one if both are the same."""
        if direction is not None:
            return (validate.one_of(DIRECTIONS, direction=direction),)
        return DIRECTIONS[:1] if self.symmetric else DIRECTIONS

    def _warn(self, worst: Interval, width: float, depth: int) -> None:
        """Warns that a width was not met, if a narrower interval would be a better bound for the mechanism."""
        if self.tight and not worst.upper - worst.lower <= width * worst.upper < math.inf:
            warnings.warn(
                f"the interval [{worst.lower!r}, {worst.upper!r}] is certified, but wider than the requested relative "
                f"width of {width:g}",
                WidthNotMet,
                stacklevel=depth,
            )

    @_beyond_float64
    def _worst_arrays(
        self, ask: Callable[[Composition, str], tuple[Floats, Floats]], direction: str | None
    ) -> tuple[Floats, Floats]:
        ask = self._asking_both_arrays(ask)
        results = [ask(each, side) for each in self.alternatives for side in self._sides(direction)]
        return np.max([low for low, _ in results], axis=0), np.max([high for _, high in results], axis=0)


def _is_tested(composition: Composition) -> bool:
    """Whether the lower bounds are those of an explicit test, so that no lattice makes intervals narrower."""
    return any(part.tested for part, _ in composition)


def _times(interval: Interval, factor: float) -> Interval:
    """An interval of probabilities times a factor near 1."""
    return Interval(*(min(end * factor, 1.0) for end in (interval.lower, interval.upper)))


def _other(side: str) -> str:
    return "add" if side == "remove" else "remove"
