"""Gaussian DP: μ² adds up exactly, and δ(ε) is a closed form."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import names
from dpassay.accounting.accountants.base import Accountant, Unsupported, noise
from dpassay.accounting.accountants.basic import PURE, Exact, ExactSum, pure_epsilon
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.base import validate


class GaussianDP(ExactSum):
    """μ-GDP (Dong, Roth and Su 2022); the cost is μ².

    A Gaussian costs 1/σ², exact under composition. A pure ε costs the μ of the Gaussian curve below its two chords. Of
    disjoint parts the worst counts; a group of k costs kμ.

    Rigor: certified. For compositions of Gaussians the answer is exact up to its rounding.
    """

    name = names.GDP
    converts_groups = True

    def mu(self) -> Bound:
        """The μ of Gaussian DP."""
        return self._bound(self._mu(), "mu")

    def epsilon(self, delta: float) -> Bound:
        validate.open_probability(delta=delta)
        return self._bound(formulas.epsilon_from_gdp(self._mu(), delta), "epsilon", delta=delta)

    def delta(self, epsilon: float) -> Bound:
        validate.non_negative(epsilon=epsilon)
        return self._bound(formulas.delta_from_gdp(self._mu(), epsilon), "delta", at=epsilon)

    def _mu(self) -> float:
        """The root of the exact sum, rounded up once, so that a claim that is exact to the last digit is met."""
        squared = self.cost * self.unit.size**2
        root = math.nextafter(math.sqrt(formulas.up(squared)), math.inf)
        for _ in range(3):  # two roundings and the step above
            below = math.nextafter(root, 0.0)
            if math.isinf(root) or Fraction(below) ** 2 < squared:
                break
            root = below
        return root


def _gaussian(accountant: Accountant[Any], event: dp_event.GaussianDpEvent) -> Exact:
    multiplier = noise(event.noise_multiplier, "noise_multiplier")
    return accountant.scale**2 / Fraction(multiplier) ** 2 if multiplier else math.inf


def _pure(accountant: Accountant[Any], event: DpEvent) -> Exact:
    mu = formulas.gdp_of_pure(formulas.up(pure_epsilon(accountant, event)))
    return mu if math.isinf(mu) else Fraction(mu) ** 2


def _unknown(accountant: Accountant[Any], event: DpEvent) -> Exact:
    raise Unsupported(f"gdp supports Gaussians and pure DP, and {type(event).__name__} is neither")


GaussianDP.handlers = {
    **dict.fromkeys(PURE, _pure),
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.ZCDpEvent: _unknown,
}
