"""Single mechanisms as laws of their privacy loss: the components of dominating pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from dpassay.accounting.conversions import formulas
from dpassay.accounting.lattice import allocation, concentrated_curve, shuffle
from dpassay.accounting.lattice.laws import Atoms, Laplace, Law, Profile
from dpassay.accounting.lattice.normal_mixtures import NormalMixtures
from dpassay.base import validate
from dpassay.base.arrays import Floats

DIRECTIONS: tuple[Literal["remove"], Literal["add"]] = ("remove", "add")

_LOST = 1e-2  # what a lower bound may lose, relatively, before there is none
_NEAREST, _FARTHEST = 1e-305, 1e100  # of a shift, in standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """One mechanism: the law of its loss in each direction."""

    remove: Law  # (P, Q), P the data set with the unit, Q without it
    add: Law  # (Q, P)
    label: str  # equal labels mean equal components
    mu: float | None = None  # μ, if the pair is N(μ, 1) against N(0, 1), whose products have closed forms
    tight: bool = True  # some pair of neighbours attains the laws
    tight_alone: bool = False  # neighbours attain a single run, but no composition
    symmetric: bool = False  # both directions have the same law, so runs in opposite directions compose alike
    # (ρ, ξ), if all that is known is that Rényi divergences are at most ξ + ρα; these add up before any conversion.
    concentrated: tuple[Fraction, Fraction] | None = None
    # η of a bounded-range selection; selections of one η compose by their adaptive bound.
    selection_eta: float | None = None
    # the exact square of which μ is the rounded root, so that a sum of many μ² is rounded once.
    mu_squared: Fraction | None = None
    # a pair that this mechanism's own pair dominates, if `remove` and `add` are only known to dominate it.
    below: Component | None = None
    tested: bool = False  # that pair is one of an explicit test, so that no lattice makes intervals narrower
    # log of a factor: the curves that are meant are those of the laws times it.
    log_factor: float = 0.0


def of_laws(
    remove: Law, add: Law | None = None, *, label: str, tight: bool = True, symmetric: bool = False
) -> Component:
    """A component from laws; `add` is by default the other direction of `remove`."""
    other = remove.swapped() if add is None else add
    return Component(remove, other, label, None, tight and not remove.upper_only, symmetric=symmetric)


def gaussian(mu: float, mu_squared: Fraction | None = None) -> Component:
    """N(μ, 1) against N(0, 1), which is its own mirror image."""
    law = NormalMixtures([1.0], [mu])
    return Component(law, law, f"gaussian({mu!r})", mu, mu_squared=mu_squared)


def gaussian_allocation(mu: float, steps: int, drawn: tuple[int, int] | None = None) -> Component:
    """A Gaussian in one of `steps` steps, at least 2: a pair that dominates it, and one that it dominates.

    If it is one of k blocks of k of t `drawn` steps, k > 1, the latter is a k-th of the sum of all steps.

    Proof: docs/proofs/allocation.md, Theorems 1 to 4.
    """
    upper, excess = allocation.upper_law(mu, min(steps, allocation.MAX_STEPS))
    label = f"allocation({mu!r}, {min(steps, allocation.MAX_STEPS)})"
    component = replace(of_laws(upper, label=label), log_factor=excess)
    if drawn is not None and drawn[0] > 1:
        of_sum = gaussian(mu * math.sqrt(drawn[0] / drawn[1]) * (1 - 2.0**-48))
        return replace(component, label=f"{label} of {drawn}", below=of_sum, tested=True)
    if steps > allocation.MAX_STEPS:
        return replace(component, tight=False)
    lower, excess = allocation.lower_law(mu, steps)
    if excess > _LOST:
        return replace(component, tight=False)
    below = replace(of_laws(lower, label=f"below({label})"), log_factor=-excess * (1 + excess))
    return replace(component, below=below)


def gaussian_shuffle(mu: float, first: float, second: float, batches: int) -> Component:
    """A Gaussian in the one of `batches` shuffled batches that has the unit, and what the largest sum tells of it.

    If all sums together tell more on average, it is what they tell.

    Proof: docs/proofs/sampling.md, Theorem 8.
    """
    label = f"shuffle({mu!r}, {first!r}, {second!r}, {batches})"
    largest, together = shuffle.law_of_maxima(first, second, batches), mu / math.sqrt(batches) * (1 - 2.0**-48)
    p, q = largest.outcomes[:2]
    if float(p @ np.log(p / q)) > together**2 / 2:
        below = of_laws(largest, label=f"below({label})")
    else:
        below = gaussian(together)
    law, other = (NormalMixtures([1.0], [mu]) for _ in range(2))  # equal, but what is below has two directions
    return Component(law, other, label, below=below, tested=True)


def laplace(noise_multiplier: float, sensitivity: float) -> Component:
    """Laplace noise of positive scale on a number of positive sensitivity."""
    epsilon = sensitivity / noise_multiplier
    exact = Fraction(epsilon) * Fraction(noise_multiplier) == Fraction(sensitivity)
    return of_laws(Laplace(epsilon, exact=exact), label=f"laplace({epsilon!r}, {exact})", symmetric=True)


def discrete_gaussian(sigma: float, sensitivity: int) -> Component:
    """See `DominatingPair.discrete_gaussian`; the sensitivity is at least 1."""
    if not sensitivity / 10 <= sigma <= 1e5:
        raise ValueError(
            f"sigma must be between a tenth of the sensitivity and 1e5, not {sigma!r}; use the continuous Gaussian"
        )
    reach = math.floor(36 * sigma) if sigma > 0.5 else math.floor(37.4 * sigma)  # where nothing underflows
    x = np.arange(sensitivity - reach, reach + 1, dtype=np.float64)
    p, q = np.exp(-((x - sensitivity) ** 2) / (2 * sigma**2)), np.exp(-(x**2) / (2 * sigma**2))
    total = float(np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2)).sum())
    losses = sensitivity * (2 * x - sensitivity) / (2 * sigma**2)
    # The mass left out of P lies above `reach`, and that of Q on the other side.
    slack = 4 * math.exp(-((reach - sensitivity) ** 2) / (2 * sigma**2))
    error = 2.0**-53 * (32 + 2 * (reach / sigma) ** 2)
    law = Atoms(p / total, q / total, error=error, slack=slack, losses=losses)
    return of_laws(law, label=f"discrete_gaussian({sigma!r}, {sensitivity})", symmetric=True)


def discrete_laplace(parameter: float, sensitivity: int) -> Component:
    """See `DominatingPair.discrete_laplace`; both above 0."""
    shift, a = sensitivity, parameter
    if a * shift > 700:
        return _far_pure(a * shift * (1 + 2.0**-52), 0.0)
    edge = 1 / (1 + math.exp(-a))  # the mass of {x ≥ 0}
    inside = np.exp(-a * np.arange(shift - 1, 0, -1)) * -math.expm1(-a) * edge
    p = np.concatenate([[math.exp(-a * shift) * edge], inside, [edge]])
    law = Atoms(p, p[::-1], error=2.0**-53 * (64 + 4 * a * shift))
    return of_laws(law, label=f"discrete_laplace({a!r}, {shift})", symmetric=True)


def approx_dp(epsilon: float, delta: float) -> Component:
    """See `DominatingPair.approx_dp`."""
    if epsilon > 700:
        return _far_pure(epsilon, delta)
    likely = 1 / (1 + math.exp(-epsilon))
    rare = math.exp(-epsilon) * likely
    law = Atoms(
        np.array([delta, (1 - delta) * likely, (1 - delta) * rare, 0.0]),
        np.array([0.0, (1 - delta) * rare, (1 - delta) * likely, delta]),
        error=2.0**-53 * (32 + 4 * epsilon),
    )
    return of_laws(law, label=f"approx_dp({epsilon!r}, {delta!r})", symmetric=True)


def concentrated(rho: Fraction, xi: Fraction) -> Component:
    """Any mechanism with Rényi divergences of at most ξ + ρα; not both 0."""
    law = concentrated_curve.law(rho, xi)
    return Component(law, law, f"concentrated({rho}, {xi})", tight=False, concentrated=(rho, xi))


def bounded_range(eta: float) -> Component:
    """One selection of range η > 0."""
    rho = min(Fraction(eta) ** 2 / 8, Fraction(formulas.zcdp_of_pure(float(eta))))
    return replace(concentrated(rho, Fraction(0)), label=f"bounded_range({eta!r})", selection_eta=float(eta))


def gaussian_mixture(
    weights: Sequence[float], sensitivities: Sequence[float], standard_deviation: float, *, mirrored: bool
) -> Component | None:
    """See `DominatingPair.gaussian_mixture`; None if all sensitivities are 0."""
    w, s = np.asarray(weights, dtype=np.float64), np.asarray(sensitivities, dtype=np.float64)
    if w.ndim != 1 or w.shape != s.shape or not w.size:
        raise ValueError(f"a mixture needs as many weights as sensitivities, not {w.size} and {s.size}")
    if not (np.isfinite(w).all() and (w >= 0).all() and abs(w.sum() - 1) < 1e-9):
        raise ValueError(f"the weights of a mixture must be at least 0 with sum 1; their sum is {w.sum()!r}")
    if not (np.isfinite(s).all() and (s >= 0).all()):
        raise ValueError("the sensitivities of a mixture must be finite and at least 0")
    if s.max() >= _NEAREST * standard_deviation:
        # A tiny shift is replaced by 0: H changes by less than what every bound on it adds for underflow.
        s = np.where(s < _NEAREST * standard_deviation, 0.0, s)
    groups: dict[float, list[float]] = {}
    for index, weight in zip(s[w > 0].tolist(), w[w > 0].tolist(), strict=True):
        groups.setdefault(index, []).append(weight)
    s = np.array(sorted(groups))
    w = np.array([math.fsum(groups[index]) for index in sorted(groups)])
    if (total := math.fsum(w)) != 1:
        w = w / total
    if not s.any():
        return None
    if not standard_deviation:
        return _noiseless(w, s, mirrored)
    if s.max() > _FARTHEST * standard_deviation:  # losses beyond float64 count as infinite
        return replace(_noiseless(w, s, mirrored), tight=False)
    # A shift that is not 0 stays positive, which changes H by less than that too.
    shifts = np.where(s > 0, np.maximum(s / standard_deviation, _NEAREST), 0.0)
    law = NormalMixtures(w, shifts, mirrored=mirrored)
    if w.size == 1:
        return gaussian(float(law.shifts[0]) * (2 if mirrored else 1))
    label = f"mixture({w.tolist()!r}, {law.shifts.tolist()!r}, {mirrored})"
    return of_laws(law, label=label, symmetric=mirrored)


def finite(p: Sequence[float] | Floats, q: Sequence[float] | Floats) -> Component:
    """See `DominatingPair.finite`."""
    sides = []
    for name, side in (("p", p), ("q", q)):
        vector = np.asarray(side, dtype=np.float64)
        if vector.ndim != 1 or not vector.size or not (np.isfinite(vector).all() and (vector >= 0).all()):
            raise ValueError(f"{name} must be a vector of numbers of at least 0")
        if abs(vector.sum() - 1) > 1e-9:
            raise ValueError(f"{name} must sum to 1, not {float(vector.sum())!r}")
        sides.append(vector / math.fsum(vector))
    if sides[0].shape != sides[1].shape:
        raise ValueError(f"p and q must have the same length, not {sides[0].size} and {sides[1].size}")
    law = Atoms(*sides, error=4 * 2.0**-53)
    return of_laws(law, label=f"finite({sides[0].tolist()!r}, {sides[1].tolist()!r})")


def profile(
    remove: Callable[[Floats], Floats],
    add: Callable[[Floats], Floats] | None = None,
    *,
    low: float,
    high: float,
    label: str | None = None,
) -> Component:
    """See `DominatingPair.profile`."""
    validate.finite(low=low)
    validate.finite(high=high)
    if low >= high:
        raise ValueError(f"low must be below high, not {low!r} and {high!r}")
    law = Profile(remove, low, high)
    other = law if add is None else Profile(add, low, high)
    return Component(law, other, label or f"profile({id(law)})", None, False)


def _noiseless(weights: Floats, sensitivities: Floats, mirrored: bool) -> Component:
    """A mixture without noise: with probability w₀ nothing is revealed, otherwise everything."""
    still, moved = (math.fsum(weights[there]) for there in (sensitivities == 0, sensitivities > 0))
    if mirrored:
        return finite(np.array([still, moved, 0.0]), np.array([still, 0.0, moved]))
    return finite(np.array([still, moved]), np.array([1.0, 0.0]))


def _far_pure(epsilon: float, delta: float) -> Component:
    """An upper bound on the profile of the worst (ε, δ)-DP pair, for an ε whose e^−ε underflows."""

    def curve(losses: Floats) -> Floats:
        rest = np.maximum(-np.expm1(np.minimum(losses - epsilon, 0.0)), 0.0) / (1 + math.exp(-min(epsilon, 700.0)))
        there = np.maximum(rest, -np.expm1(np.minimum(losses, 0.0)))
        return np.asarray(np.minimum((delta + (1 - delta) * there) * (1 + 2.0**-48), 1.0))

    return profile(curve, low=-650.0, high=650.0, label=f"pure({epsilon!r}, {delta!r})")
