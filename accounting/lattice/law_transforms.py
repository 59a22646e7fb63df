"""Laws made from other laws: Poisson-sampled, blended, symmetrised, given by cdfs, or by a bound on their curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cupel.accounting.lattice.laws import _EXP, UNIT, Floats, Law, Remainder, Tails, exp_minus_weight


class Sampled(Law):
    """((1 − q)Q + qP, Q): a Poisson sample in which a unit takes part with probability q.

    At t = (1 − q) + qs the hockey-stick divergence is q times that of (P, Q) at s, so the loss is log(1 − q + q e^L).

    Source: Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function" (2022), Theorem
        11.
    """

    def __init__(self, law: Law, rate: float) -> None:
        self.law, self.rate = law, rate
        self.infinity_mass = rate * law.infinity_mass
        self.infinity_mass_error, self.end_error = law.infinity_mass_error + 4 * UNIT, law.end_error
        if math.isfinite(law.highest):
            self.end_error += 64 * UNIT * (1 + abs(law.highest))
        self.discrete = law.discrete
        self.dominating_mu = law.dominating_mu
        self.lowest = self._grown(-math.inf if law.minus_infinity_mass else law.lowest)
        self.highest = self._grown(law.highest)
        if law.minus_infinity_mass:
            self.atom = self.lowest
        elif law.atom is not None:
            self.atom = self._grown(law.atom)
            if math.isfinite(law.spacing) and law.spacing and law.spacing >= 0.999 * (law.highest - law.lowest):
                self.spacing = self.highest - self.lowest  # two atoms, one at each end
        self.upper_only, self.relative_cost = law.upper_only, law.relative_cost

    def _grown(self, loss: float) -> float:
        """The loss of the sample at a loss of the inner law: log(1 − q + q e^L)."""
        if loss > 700:
            return float(np.logaddexp(math.log1p(-self.rate), loss + math.log(self.rate)))
        if loss < -math.log(2):  # accurate for a small 1 − q too
            return math.log((1 - self.rate) + self.rate * math.exp(loss))
        return math.log1p(self.rate * math.expm1(loss))

    def pruned(self, mass: float) -> Law:
        return Sampled(self.law.pruned(mass), self.rate)

    def _inner(self, thresholds: Floats) -> tuple[Floats, NDArray[np.bool_], Floats, Floats]:
        """The inner loss log((t − 1 + q)/q); where there is none; the outer loss's rounding; its derivative in the
        inner loss.
        """
        thresholds = np.clip(thresholds, -700.0, 700.0)
        t_minus_w, rounding = exp_minus_weight(thresholds, self.rate, 1 - self.rate)
        none = t_minus_w <= 0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = t_minus_w / self.rate
            inner = np.where(np.isinf(ratio), np.log(t_minus_w) - math.log(self.rate), np.log(ratio))
        share = np.where(none, 0.0, t_minus_w * np.exp(-thresholds))
        finite = np.where(none, 0.0, inner)
        shift = 2 * rounding + share * (2 * _EXP + 16 * UNIT * np.abs(finite))
        edge = np.where(t_minus_w < -16 * UNIT, 0.0, 16 * UNIT)
        return finite, none, np.where(none, edge, shift), share

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        if not self.upper_only:
            return super().hockey_stick_upper(thresholds)
        inner, none, shift, share = self._inner(thresholds)
        curve = self.rate * self.law.hockey_stick_upper(inner - 2 * shift / np.maximum(share, 1e-300)) * (1 + 4 * UNIT)
        return np.where(none, -np.expm1(thresholds) * (1 + 2 * _EXP) + 32 * UNIT, np.minimum(curve, 1.0))

    def tails(self, thresholds: Floats) -> Tails:
        inner, none, shift, share = self._inner(thresholds)
        order = np.maximum.accumulate(np.where(none, inner[~none].min() if (~none).any() else 0.0, inner))
        tails = self.law.tails(order)
        q_above, q_below = np.where(none, 1.0, tails.q_above), np.where(none, 0.0, tails.q_below)
        p_above, p_below = np.where(none, 1.0, tails.p_above), np.where(none, 0.0, tails.p_below)
        complement = 1 - self.rate
        return Tails(
            complement * q_above + self.rate * p_above,
            complement * q_below + self.rate * p_below,
            q_above,
            q_below,
            np.where(none, 0.0, tails.error) + 4 * UNIT,
            np.where(none, 0.0, share * np.expm1(tails.shift)) + shift,
            complement * tails.q_slack + self.rate * tails.p_slack,
            tails.q_slack,
            remainder=Remainder(self.rate * p_above, self.rate * p_below, self.rate, complement),
        )


class Blend(Law):
    """Σ w_i H_i: one of several pairs is chosen with probability w_i, and the choice is released.

    Args:
        laws: the pairs.
        weights: w_i, positive, with sum 1 up to one rounding each.
        rounded_up: the weights are upper bounds, so their sum may be larger; the blend then has upper bounds only.
    """

    def __init__(self, laws: Sequence[Law], weights: Sequence[float], *, rounded_up: bool = False) -> None:
        self.laws, self.weights, self._rounded_up = tuple(laws), tuple(weights), rounded_up
        self.infinity_mass = sum(w * law.infinity_mass for w, law in zip(weights, laws, strict=True))
        chances = [
            law.infinity_mass_bound if law.upper_only else law.infinity_mass * (1 + law.infinity_mass_error)
            for law in laws
        ]
        self.infinity_mass_bound = sum(w * chance for w, chance in zip(weights, chances, strict=True)) * (1 + 1e-14)
        self.minus_infinity_mass = sum(w * law.minus_infinity_mass for w, law in zip(weights, laws, strict=True))
        self.discrete = all(law.discrete for law in laws)
        self.atom = next((law.atom for law in laws if law.atom is not None), None)
        self.lowest = min(law.lowest for law in laws)
        self.highest = max(law.highest for law in laws)
        self.dominating_mu = max(law.dominating_mu for law in laws)
        self.end_error = max(law.end_error for law in laws)
        self.infinity_mass_error = max(law.infinity_mass_error for law in laws)
        self.upper_only = rounded_up or any(law.upper_only for law in laws)
        self.relative_cost = sum(law.relative_cost for law in laws)

    def pruned(self, mass: float) -> Law:
        return Blend([law.pruned(mass) for law in self.laws], self.weights, rounded_up=self._rounded_up)

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        curves = [w * law.hockey_stick_upper(thresholds) for w, law in zip(self.weights, self.laws, strict=True)]
        return np.asarray(np.minimum(np.sum(curves, axis=0) * (1 + 2 * (len(curves) + 2) * UNIT), 1.0))

    def tails(self, thresholds: Floats) -> Tails:
        parts = [law.tails(thresholds) for law in self.laws]

        def total(side: str) -> Floats:
            return np.asarray(sum(w * getattr(part, side) for w, part in zip(self.weights, parts, strict=True)))

        return Tails(
            total("p_above"),
            total("p_below"),
            total("q_above"),
            total("q_below"),
            np.max([part.error for part in parts], axis=0) + 2 * (len(parts) + 2) * UNIT,
            np.max([part.shift for part in parts], axis=0),
            float(total("p_slack")),
            float(total("q_slack")),
        )


class Symmetrized(Law):
    """The curve of a law for t ≥ 1, and its mirror image H(t) = 1 − t + t·H(1/t) for t < 1.

    It has an atom at loss 0 with the remaining mass. For b ≥ 0 the masses above b are the law's; below 0, P and Q
    change places.

    Proof: docs/proofs/lattice.md, Theorem 8.
    """

    atom = 0.0

    def __init__(self, law: Law) -> None:
        self.law = law
        self.infinity_mass = self.minus_infinity_mass = law.infinity_mass
        self.highest, self.lowest = law.highest, -law.highest
        self.dominating_mu = law.dominating_mu

    def swapped(self) -> Law:
        return self

    def tails(self, thresholds: Floats) -> Tails:
        negative = thresholds < 0
        order = np.argsort(np.abs(thresholds), kind="stable")
        sorted_tails = self.law.tails(np.abs(thresholds)[order])
        back = np.empty(order.size, dtype=np.intp)
        back[order] = np.arange(order.size)
        p, q, error, shift = (getattr(sorted_tails, name)[back] for name in ("p_above", "q_above", "error", "shift"))
        p_above, p_below = np.where(negative, 1 - q, p), np.where(negative, q, 1 - p)
        q_above, q_below = np.where(negative, 1 - p, q), np.where(negative, p, 1 - q)
        # 1 − p has the absolute error of p.
        left = np.minimum(1 - p, 1 - q)
        grown = error * np.maximum(1.0, p / np.maximum(left, 1e-300)) + 2 * UNIT
        return Tails(p_above, p_below, q_above, q_below, grown, shift)


class Cdfs(Law):
    """A pair on the line given by its cdfs, with a loss that increases with x.

    Args:
        p_cdf, p_sf, q_cdf, q_sf: vectorised cdfs and survival functions (1 − cdf, without its cancellation).
        inverse: vectorised, b ↦ x with L(x) = b; −∞ or ∞ outside the support.
        error: relative error of the four functions.
        shift: bound on |L(inverse(b)) − b|.
        atom, lowest, highest: as for every law.
    """

    def __init__(
        self,
        p_cdf: Callable[[Floats], Floats],
        p_sf: Callable[[Floats], Floats],
        q_cdf: Callable[[Floats], Floats],
        q_sf: Callable[[Floats], Floats],
        inverse: Callable[[Floats], Floats],
        *,
        error: float,
        shift: float,
        atom: float | None = None,
        lowest: float = -math.inf,
        highest: float = math.inf,
    ) -> None:
        self._sides = (p_sf, p_cdf, q_sf, q_cdf)
        self._inverse, self._error, self._shift = inverse, error, shift
        self.atom, self.lowest, self.highest = atom, lowest, highest

    def tails(self, thresholds: Floats) -> Tails:
        x = np.asarray(self._inverse(thresholds), dtype=np.float64)
        p_above, p_below, q_above, q_below = (np.asarray(side(x), dtype=np.float64) for side in self._sides)
        error, shift = np.full(x.shape, self._error), np.full(x.shape, self._shift)
        return Tails(p_above, p_below, q_above, q_below, error, shift)


class Profile(Law):
    """A law of which only an upper bound on the hockey-stick curve is known.

    Args:
        hockey_stick: vectorised, increasing losses b of either sign ↦ an upper bound on H(e^b). It need not be convex:
            the lattice takes the least convex curve through its values, which is still an upper bound on the convex H.
        low, high: the losses between which the lattice evaluates the curve.
    """

    upper_only = True

    def __init__(self, hockey_stick: Callable[[Floats], Floats], low: float, high: float) -> None:
        self._curve, self._low, self._high = hockey_stick, low, high

    def swapped(self) -> Law:
        raise ValueError("an upper bound on a curve does not determine the other direction; give both directions")

    def support(self, left: float, right: float) -> tuple[float, float]:
        return self._low, self._high

    def tails(self, thresholds: Floats) -> Tails:
        """Masses from the slopes of the curve, to choose a lattice; not bounds."""
        curve = self.hockey_stick_upper(thresholds)
        t = np.exp(np.minimum(thresholds, 700.0))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            slopes = np.nan_to_num(np.maximum(-np.gradient(curve, t), 0.0)) if t.size > 1 else np.zeros(t.shape)
        q_above = np.minimum(np.minimum.accumulate(slopes), 1.0)
        p_above = np.clip(curve + t * q_above, 0.0, 1.0)
        none = np.zeros(t.shape)
        return Tails(p_above, 1 - p_above, q_above, 1 - q_above, none, none)

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        """The upper bound, at most 1."""
        return np.minimum(np.asarray(self._curve(thresholds), dtype=np.float64), 1.0)
