"""Zero-concentrated DP: ρ adds up exactly, and converts to (ε, δ) at the best order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dp_accounting import dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.base import Accountant, Unsupported, noise
from dpassay.accounting.accountants.basic import PURE, Exact, exact_sum, pure_epsilon
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, DiscreteGaussianDpEvent, ExPostSelectionDpEvent
from dpassay.base import validate

Pair = tuple[Exact, Exact]
"""(ρ, ξ): Rényi divergence of every order α > 1 at most ξ + ρα."""


class ZeroConcentrated(Accountant[Pair]):
    """ρ-zCDP (Bun and Steinke 2016).

    A Gaussian costs 1/(2σ²), a pure ε costs ε·tanh(ε/2), and a bounded-range selection the smaller of η²/8 (Cesar and
    Rogers 2021) and that of its pure ε. Of disjoint parts the worst counts. A group of k costs k²ρ and
    k(1 + 1/2 + … + 1/k)ξ.

    Rigor: certified. ρ is an exact rational sum; the conversion to ε takes the least over all orders and adds its float
    error.
    """

    name = names.ZCDP
    converts_groups = True

    def rho(self) -> Bound:
        """The ρ of zCDP; with an additive ξ it is ρ + ξ, since ξ + ρα ≤ (ξ + ρ)α for α > 1."""
        rho, xi = self.exact()
        return self._bound(formulas.up(rho + xi), "rho")

    def epsilon(self, delta: float) -> Bound:
        validate.open_probability(delta=delta)
        rho, xi = self._parameters()
        return self._bound(formulas.epsilon_from_zcdp(rho, delta, xi), "epsilon", delta=delta)

    def delta(self, epsilon: float) -> Bound:
        validate.non_negative(epsilon=epsilon)
        rho, xi = self._parameters()
        return self._bound(formulas.delta_from_zcdp(rho, epsilon, xi), "delta", at=epsilon)

    def _parameters(self) -> tuple[float, float]:
        rho, xi = self.exact()
        return formulas.up(rho), formulas.up(xi)

    def exact(self) -> Pair:
        """(ρ, ξ) at the unit.

        For a chain of k steps, Hölder's inequality bounds the divergence of order α by kα/(kα − 1) times that of order
        (kα − 1)/(k − 1) of all but the last step, plus that of order kα of the last. So ρ_k
        α = ρ_{k−1}kα(kα − 1)/((k − 1)(kα − 1)) + ρkα, which gives ρ_k = k²ρ, and ξ_k ≤ ξ_{k−1}k/(k − 1) + ξ for α > 1,
        which gives ξ_k = k(1 + … + 1/k)ξ.

        Source: Bun and Steinke, "Concentrated Differential Privacy" (2016), Section 5, on group privacy.
        """
        rho, xi = self.cost
        size = self.unit.size
        if size == 1:
            return rho, xi
        harmonic = 1 + math.log(size) * (1 + 2.0**-50)  # at least 1 + 1/2 + … + 1/k
        return rho * size**2, xi * size * Fraction(harmonic * (1 + 2.0**-50))

    def _zero(self) -> Pair:
        return Fraction(0), Fraction(0)

    def _add(self, costs: Sequence[Pair]) -> Pair:
        return exact_sum(rho for rho, _ in costs), exact_sum(xi for _, xi in costs)

    def _times(self, cost: Pair, count: int) -> Pair:
        return cost[0] * count, cost[1] * count

    def _largest(self, costs: Sequence[Pair], how_many: int) -> Pair:
        rhos, xis = (sorted(column, reverse=True)[:how_many] for column in zip(*costs, strict=True))
        return exact_sum(rhos), exact_sum(xis)


def _gaussian(accountant: Accountant[Any], event: dp_event.GaussianDpEvent) -> Pair:
    multiplier = noise(event.noise_multiplier, "noise_multiplier")
    return (accountant.scale**2 / (2 * Fraction(multiplier) ** 2) if multiplier else math.inf), Fraction(0)


def _discrete_gaussian(accountant: Accountant[Any], event: DiscreteGaussianDpEvent) -> Pair:
    """Δ²/(2σ²), in any number of dimensions (Canonne, Kamath and Steinke 2020, Theorem 4)."""
    sigma, reach = Fraction(noise(event.sigma, "sigma")), accountant.scale * Fraction(event.sensitivity)
    return (reach**2 / (2 * sigma**2) if sigma else math.inf if reach else Fraction(0)), Fraction(0)


def _zcdp(accountant: Accountant[Any], event: dp_event.ZCDpEvent) -> Pair:
    return Fraction(noise(event.rho, "rho")), Fraction(noise(event.xi, "xi"))


def _bounded_range(accountant: Accountant[Any], event: BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent) -> Pair:
    """η-bounded range is η²/8-zCDP (Cesar and Rogers, "Bounding, Concentrating, and Truncating", 2021), and η-DP."""
    epsilon = pure_epsilon(accountant, event)
    return min(epsilon * epsilon / 8, _of_pure(epsilon)), Fraction(0)


def _pure(accountant: Accountant[Any], event: Any) -> Pair:
    return _of_pure(pure_epsilon(accountant, event)), Fraction(0)


def _of_pure(epsilon: Exact) -> Exact:
    """ε-DP is ε·tanh(ε/2)-zCDP, and no smaller ρ is enough; see `formulas.zcdp_of_pure`."""
    rounded = formulas.up(epsilon)
    return rounded if math.isinf(rounded) else Fraction(formulas.zcdp_of_pure(rounded))


def _sampled(accountant: Accountant[Any], event: dp_event.DpEvent) -> Pair:
    raise Unsupported(f"zcdp has no amplification by sampling, so it has no bound for {type(event).__name__}")


ZeroConcentrated.handlers = {
    **dict.fromkeys(PURE, _pure),
    dp_event.GaussianDpEvent: _gaussian,
    DiscreteGaussianDpEvent: _discrete_gaussian,
    dp_event.ZCDpEvent: _zcdp,
    BoundedRangeSelectionDpEvent: _bounded_range,
    ExPostSelectionDpEvent: _bounded_range,
    dp_event.PoissonSampledDpEvent: _sampled,
}
