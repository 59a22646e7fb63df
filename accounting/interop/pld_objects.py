"""Dominating pairs to and from discrete privacy loss distributions: dp_accounting's, riskcal's and gdpnum's.

A `LossDistribution` is the privacy loss of one direction on a grid, as those libraries hold it. With probabilities p_i
at the losses l_i = i·h and p_∞ at infinity, its privacy profile is G(ε) = p_∞ + Σ_i p_i (1 − e^{ε − l_i})⁺. It is
convex and piecewise linear in x = e^ε, with its corners on the grid.

**Pessimistic.** δ is convex and decreasing in x, and δ(x = 0) ≤ 1. If G is at least δ at x = 0, at its corners and
beyond the last one, it is at least δ everywhere, since a chord lies above a convex function. So p are the differences
of the slopes of the lower convex hull of upper bounds on δ at the points of the grid; they are then scaled up until G,
with the rounding of its own evaluation counted, is at least the upper bound at each corner.

**Optimistic.** The value at each point is a lower bound on δ at the next one, and δ decreases: if G is at most that
value at every point of the grid, it is at most δ everywhere. p are scaled down until it is, with the rounding counted.

Source: Doroshenko et al., "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions" (2022), for
pessimistic estimates by hulls of the profile.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.accounting.lattice.components import DIRECTIONS
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet
from dpassay.base import validate
from dpassay.base.arrays import Floats

LARGEST = 2**21
"""Points of a grid."""

_MISSING = 1e-6
"""More than what Fourier transforms of other libraries lose of a probability of 1."""


@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """The privacy loss of one direction, on the grid of multiples of `discretization`.

    Attributes:
        lowest: index of the first loss, which is ``lowest * discretization``.
        probabilities: of the losses, float64, one dimension, none negative.
        infinity_mass: probability of an infinite loss.
        discretization: distance h of the losses.
    """

    lowest: int
    probabilities: Floats
    infinity_mass: float
    discretization: float

    def __post_init__(self) -> None:
        validate.positive(discretization=self.discretization)
        validate.probability(infinity_mass=self.infinity_mass)
        if self.probabilities.ndim != 1 or not (np.isfinite(self.probabilities) & (self.probabilities >= 0)).all():
            raise ValueError("probabilities must be a one-dimensional array of numbers, none negative")
        if self.probabilities.size > LARGEST or abs(self.lowest) > 2**40:
            raise ValueError(f"a loss distribution has at most {LARGEST} losses; take a larger discretization")

    def profile(self, epsilons: Floats) -> Floats:
        """Upper bounds on its own G(ε), for ε of either sign (float64).

        They are at least G(ε), or 1, and exceed G(ε − s) by less than a part in 10⁸, where s is at most
        2⁻⁴⁹ (1 + |ε| + the largest loss).
        """
        points = np.asarray(epsilons, dtype=np.float64)
        size = self.probabilities.size
        if not size:
            return np.asarray(np.maximum(self.infinity_mass, -np.expm1(np.minimum(points, 0.0))))
        losses = (self.lowest + np.arange(size)) * self.discretization
        excess, tail = _excesses(np.arange(size), self.probabilities, self.discretization)
        # G decreases. The losses and the difference below are rounded by less than this.
        moved = points - 2.0**-50 * (1 + np.abs(losses).max() + np.abs(points))
        first = np.searchsorted(losses, moved, side="right")  # the first loss above
        there = np.minimum(first, size - 1)
        gap = np.maximum(losses[there] - moved, 0.0)
        result = -np.expm1(-gap) * (tail[there] + self.probabilities[there]) + np.exp(-gap) * excess[there]
        result = self.infinity_mass + np.where(first < size, result, 0.0)
        result *= 1 + _rounding(size, size * self.discretization)
        return np.asarray(np.clip(result, np.maximum(-np.expm1(np.minimum(points, 0.0)), 0.0), 1.0))


def loss_distribution(
    pair: DominatingPair,
    direction: str,
    *,
    discretization: float = 1e-3,
    tail: float = 1e-15,
    pessimistic: bool = True,
) -> LossDistribution:
    """The loss distribution of one direction of a pair, whose privacy profile is a bound on that of the pair.

    Args:
        pair: any dominating pair.
        direction: "remove" or "add".
        discretization: h; the profile is off by about h² if pessimistic, and shifted by h if not.
        tail: δ from which on the loss counts as infinite.
        pessimistic: its G(ε) is at least δ(ε) of the pair at every ε; otherwise at most. A pair that no neighbours
            attain has no optimistic estimate.
    """
    validate.one_of(DIRECTIONS, direction=direction)
    validate.positive(discretization=discretization)
    validate.open_probability(tail=tail)
    if not pessimistic and not pair.tight:
        raise ValueError(
            "a pair that is only an upper bound has no optimistic loss distribution; ask for a pessimistic one"
        )
    other = DIRECTIONS[1 - DIRECTIONS.index(direction)]
    top, bottom = _reach(pair, direction, tail), _reach(pair, other, tail)
    if max(top, bottom) / discretization > LARGEST / 2 - 4:
        raise ValueError(f"discretization {discretization!r} makes a grid of more than {LARGEST} losses; take a larger")
    lowest, highest = -math.ceil(bottom / discretization) - 1, math.ceil(top / discretization) + 1
    indices = np.arange(lowest, highest + 1)
    epsilons = indices * discretization  # rounded; the profile decreases
    side = -np.inf if pessimistic else np.inf
    low, high = pair.privacy_profile(np.nextafter(epsilons, side), direction)
    if pessimistic:
        values = np.minimum.accumulate(np.minimum(high, 1.0))
    else:
        shifted = np.append(low[1:], pair.blowup(0.0, direction=direction).lower)
        values = np.maximum(np.maximum.accumulate(shifted[::-1])[::-1], 0.0)
        values = np.minimum(values, -np.expm1(epsilons[0]) * (1 - 2.0**-48))  # below 1 − x at the first point
    corners, probabilities = _hull(values, discretization)
    masses = np.zeros(indices.size)
    masses[corners] = probabilities
    infinity = float(values[-1])
    checked = corners if pessimistic else np.arange(indices.size)  # a chord is above δ if its ends are, not below
    excess, above = _excesses(checked, masses[checked], discretization)
    reached, total = infinity + excess, infinity + above[0] + masses[checked[0]]
    slack = _rounding(checked.size, indices.size * discretization)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.append(values[checked] / reached, 1.0 / total)
    if pessimistic:
        scale = max(1.0, float(np.nanmax(ratios))) * (1 + 2 * slack)
    else:
        scale = min(1.0, float(np.nanmin(ratios))) * (1 - 2 * slack)
    first, last = int(corners[0]), int(corners[-1])
    return LossDistribution(
        lowest + first, masses[first : last + 1] * scale, min(1.0, infinity * scale), discretization
    )


def _reach(pair: DominatingPair, direction: str, tail: float) -> float:
    """An ε at which δ is at most `tail` more than the probability of an infinite loss."""
    infinity_mass = pair.blowup(0.0, direction=direction).upper
    if infinity_mass >= 1:
        return 0.0
    target = infinity_mass * (1 + 2.0**-20) + tail
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)  # only its upper end is used
        result = pair.epsilon(target, direction=direction).upper if target < 1 else 0.0
    if not math.isfinite(result):
        raise ValueError("the pair has no finite ε at the tail's δ; take a larger tail")
    return result


def _rounding(steps: int, reach: float) -> float:
    """Relative error of `_excesses` over so many corners that lie so far apart.

    A step has two products and a sum of non-negative numbers, and exponentials to 4 ulp of arguments that are rounded.
    """
    return 2.0**-53 * (16 * steps + 2 * reach + 32)


def _excesses(corners: Any, probabilities: Floats, discretization: float) -> tuple[Floats, Floats]:
    """At each corner, Σ p_i (1 − e^{l − l_i}) over the corners i above it, and their Σ p_i.

    By a recurrence all of whose terms are non-negative, so that nothing cancels.
    """
    shrink = np.exp(-np.diff(corners) * discretization).tolist()
    lost = (-np.expm1(-np.diff(corners) * discretization)).tolist()
    weights = probabilities.tolist()
    excess, tail = [0.0] * len(weights), [0.0] * len(weights)
    for index in range(len(weights) - 2, -1, -1):
        tail[index] = tail[index + 1] + weights[index + 1]
        excess[index] = lost[index] * tail[index] + shrink[index] * excess[index + 1]
    return np.array(excess), np.array(tail)


def _hull(values: Floats, discretization: float) -> tuple[Any, Floats]:
    """The corners of the lower convex hull in x = e^ε of (0, 1) and the values on the grid, with their probabilities.

    The probability at a corner is x times the difference of the slopes at its sides; beyond the last the hull is flat.
    """
    heights: list[float] = values.tolist()

    def weight(before: int | None, at: int, after: int | None) -> float:
        left = 1 - heights[at]
        if before is not None:
            left = (heights[before] - heights[at]) / -math.expm1((before - at) * discretization)
        if after is None or (after - at) * discretization > 700:
            return left
        return left - (heights[at] - heights[after]) / math.expm1((after - at) * discretization)

    corners: list[int] = []
    for index in range(len(heights)):
        while corners and weight(corners[-2] if len(corners) > 1 else None, corners[-1], index) <= 0:
            corners.pop()
        corners.append(index)
    around = zip([None, *corners[:-1]], corners, [*corners[1:], None], strict=True)
    return np.array(corners), np.array([max(0.0, weight(*each)) for each in around])


# --- dp_accounting


def to_dp_accounting(
    pair: DominatingPair, *, discretization: float = 1e-3, tail: float = 1e-15, pessimistic: bool = True
) -> Any:
    """A `dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution` that bounds a pair.

    gdpnum takes the object as it is. A pair whose directions have the same law gives one distribution, which libraries
    then know to be symmetric; two that differ by rounding only, gdpnum refuses. What the library computes from it, and
    compositions, round in float64 and by Fourier transforms, which is not counted here. Of disjoint parts, each
    direction is that of the worst part at each ε; such an optimistic estimate may not be composed.

    Args:
        pair, discretization, tail, pessimistic: see `loss_distribution`.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    made = [
        loss_distribution(pair, side, discretization=discretization, tail=tail, pessimistic=pessimistic)
        for side in (DIRECTIONS[:1] if pair.symmetric else DIRECTIONS)
    ]
    return privacy_loss_distribution.PrivacyLossDistribution(
        *(
            pld_pmf.DensePLDPmf(item.discretization, item.lowest, item.probabilities, item.infinity_mass, pessimistic)
            for item in made
        )
    )


def from_dp_accounting(distribution: Any) -> DominatingPair:
    """An upper bound from a `PrivacyLossDistribution` of dp_accounting.

    A pessimistic estimate bounds a mechanism from above only, so the lower ends of the pair's intervals bound nothing,
    and `tight` is false. What holds of the object is taken from it: that it dominates is the claim of whoever made it.

    Raises:
        ValueError: if the object is an optimistic estimate, or something else.
    """
    try:
        parts = [distribution._pmf_remove.to_dense_pmf()]
        if not distribution._symmetric:
            parts.append(distribution._pmf_add.to_dense_pmf())
        pessimistic = all(part._pessimistic_estimate for part in parts)
        made = [
            LossDistribution(
                int(part._lower_loss),
                np.maximum(np.asarray(part._probs, dtype=np.float64), 0.0),  # transforms leave small negative numbers
                float(np.clip(part._infinity_mass, 0.0, 1.0)),  # not a number stays one, and is refused
                float(part._discretization),
            )
            for part in parts
        ]
    except (AttributeError, TypeError):
        raise ValueError(
            f"a PrivacyLossDistribution of dp_accounting is needed, not {type(distribution).__name__}"
        ) from None
    if not pessimistic:
        raise ValueError("an optimistic privacy loss distribution bounds nothing from above; give a pessimistic one")
    return from_loss_distributions(*made)


def from_loss_distributions(remove: LossDistribution, add: LossDistribution | None = None) -> DominatingPair:
    """An upper bound from loss distributions of both directions, which must dominate; `add` is by default `remove`.

    Its intervals have no lower end that means anything: `tight` is false.

    Raises:
        ValueError: if the probabilities of one add up to less than 1, so that it dominates nothing.
    """
    made = [item for item in (remove, add) if item is not None]
    for item in made:
        total = item.infinity_mass + math.fsum(item.probabilities)
        if total < 1 - _MISSING:
            raise ValueError(f"the probabilities of a loss distribution add up to {total:.6g}, and must add up to 1")
    reach = max(
        abs(index) * item.discretization
        for item in made
        for index in (item.lowest, item.lowest + item.probabilities.size)
    )
    ends = reach + max(item.discretization for item in made)
    return DominatingPair.profile(
        remove.profile, None if add is None else add.profile, low=-min(ends, 650.0), high=min(ends, 650.0)
    )


# --- riskcal


def to_plrvs(pair: DominatingPair, *, discretization: float = 1e-3, tail: float = 1e-15) -> dict[str, Any]:
    """The arguments of riskcal's `PLRVs` for a pessimistic estimate of a pair.

    Y is the loss log P/Q under P, and X the same under Q, which is the negative of the other direction's loss; both in
    multiples of the discretization. Each is an estimate of its own direction. What riskcal computes from both, such as
    β(α), adds to their errors its own rounding, and neither is counted there.

    Source: `riskcal/analysis/_plrv.py` of riskcal 1.5.1.
    """
    above, below = (loss_distribution(pair, side, discretization=discretization, tail=tail) for side in DIRECTIONS)
    return {
        "y0": above.lowest,
        "pmf_Y": above.probabilities,
        "infinity_mass_Y": above.infinity_mass,
        "x0": 1 - below.lowest - below.probabilities.size,
        "pmf_X": below.probabilities[::-1],
        "minus_infinity_mass_X": below.infinity_mass,
        "is_symmetric": False,
    }


def from_plrvs(variables: Mapping[str, Any], discretization: float) -> DominatingPair:
    """An upper bound from riskcal's `PLRVs`, by the names of its fields; see `from_loss_distributions`.

    Args:
        variables: ``y0``, ``pmf_Y``, ``infinity_mass_Y``, ``x0``, ``pmf_X`` and ``minus_infinity_mass_X``, as
            ``dataclasses.asdict`` gives them.
        discretization: of the grid, which riskcal does not keep.
    """
    upper, lower = (np.asarray(variables[name], dtype=np.float64) for name in ("pmf_Y", "pmf_X"))
    return from_loss_distributions(
        LossDistribution(int(variables["y0"]), upper, float(variables["infinity_mass_Y"]), discretization),
        LossDistribution(
            1 - int(variables["x0"]) - lower.size,
            lower[::-1],
            float(variables["minus_infinity_mass_X"]),
            discretization,
        ),
    )
