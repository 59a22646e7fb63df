"""Conversions between guarantees: every one that holds for all mechanisms, rounded outward, and the reasons for the
others.

A guarantee holds in both directions between neighbours, at one unit and adjacency, which `convert` keeps
(`dpassay.accounting.group_privacy` changes them). (ε, δ)-DP at several points is a curve; see
docs/proofs/conversions-curve.md, Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from dpassay.accounting.conversions import formulas
from dpassay.accounting.guarantees import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    ExPostDP,
    Guarantee,
    PrivacyProfile,
    PureDP,
    SecretProtection,
)
from dpassay.accounting.lattice import gaussian_curve
from dpassay.base import validate
from dpassay.base.arrays import Floats

Kind: TypeAlias = type[Any]
Conversion: TypeAlias = Callable[[Any, Any], Guarantee]
"""From a guarantee and the argument of the wanted one (δ, α, the ε of a profile, or p)."""

_UNIT = 2.0**-53
_ARGUMENTS: dict[Kind, str] = {ApproxDP: "delta", RDP: "alpha", PrivacyProfile: "epsilons", SecretProtection: "p"}


def refusal(source: Kind, to: Kind) -> str | None:
    """Why no guarantee of kind `source` converts to kind `to`; None if some do.

    A guarantee of no loss (ε, ρ or μ of 0) is pure 0-DP whatever its kind, and converts as that.
    """
    for kind in (source, to):
        if kind not in TABLE:
            raise ValueError(f"a guarantee must be one of {', '.join(item.__name__ for item in TABLE)}, not {kind!r}")
    entry = TABLE[source][to]
    return entry if isinstance(entry, str) else None


def convert(
    guarantee: Guarantee,
    to: Kind,
    *,
    delta: float | None = None,
    alpha: float | None = None,
    epsilons: Sequence[float] | None = None,
    p: float | None = None,
) -> Any:
    """The strongest guarantee of kind `to` known to follow, at the same unit and adjacency.

    Args:
        guarantee: what holds.
        to: a class of `dpassay.accounting.guarantees`.
        delta: for `ApproxDP`: its δ in (0, 1).
        alpha: for `RDP`: its order, above 1.
        epsilons: for `PrivacyProfile`: its ε, increasing, of either sign.
        p: for `SecretProtection`: the largest probability of a guess before, in (0, 1). The neighbours of `guarantee`
            must be data with the secret and a reference without it.

    Returns:
        A guarantee of kind `to`; `guarantee` itself if it is of that kind and no argument is given.

    Raises:
        ValueError: if no such guarantee follows, with the reason; if an argument is missing or does not apply.

    Source: `TABLE` names the formula of each conversion; `dpassay.accounting.conversions.formulas` cites their
    theorems.
    """
    reason = refusal(type(guarantee), to)
    wanted = _ARGUMENTS.get(to)
    given = {"delta": delta, "alpha": alpha, "epsilons": epsilons, "p": p}
    for name, value in given.items():
        if value is not None and name != wanted:
            raise ValueError(f"{to.__name__} takes {f'only {wanted}' if wanted else 'no argument'}, not {name}")
    argument = given[wanted] if wanted else None
    if argument is None and type(guarantee) is to:
        return guarantee
    source = _without_loss(guarantee) or guarantee
    entry = TABLE[type(source)][to]
    if isinstance(entry, str):
        raise ValueError(f"{type(guarantee).__name__} does not convert to {to.__name__}: {reason}")
    if wanted and argument is None:
        raise ValueError(f"a conversion to {to.__name__} needs {wanted}")
    return entry(source, argument)


def _without_loss(guarantee: Guarantee) -> PureDP | None:
    """Pure 0-DP, if the guarantee is equivalent to it: one divergence of 0 makes the two laws equal."""
    match guarantee:
        case PureDP(0) | ZCDP(0) | GDP(0) | RDP(_, 0):
            return PureDP(0.0)
        case PrivacyProfile(epsilons, deltas) if any(e <= 0 == d for e, d in zip(epsilons, deltas, strict=True)):
            return PureDP(0.0)
    return None


# Targets that are parts of a curve


def _approx(guarantee: Any, delta: float) -> ApproxDP:
    validate.open_probability(delta=delta)
    match guarantee:
        case ZCDP(rho):
            epsilon = formulas.epsilon_from_zcdp(rho, delta)
        case GDP(mu):
            epsilon = formulas.epsilon_from_gdp(mu, delta)
        case RDP(alpha, divergence):
            epsilon = formulas.least_epsilon_from_rdp(alpha, divergence, delta)
        case _:
            epsilon = _epsilon_on_curve(*_points(guarantee), delta)
    if math.isinf(epsilon):
        raise ValueError(f"{type(guarantee).__name__} gives no ε at δ = {delta!r}, as all of its δ are larger")
    return ApproxDP(epsilon, delta)


def _profile(guarantee: Any, epsilons: Sequence[float]) -> PrivacyProfile:
    indices = tuple(float(validate.finite(epsilon=epsilon)) for epsilon in epsilons)
    deltas = np.array([_delta(guarantee, epsilon) for epsilon in indices])
    return PrivacyProfile(indices, tuple(np.minimum.accumulate(deltas).tolist()))


def _delta(guarantee: Any, epsilon: float) -> float:
    """δ at any ε, rounded up; below 0 by the mirror image of the δ at −ε."""
    match guarantee:
        case PureDP() | ApproxDP() | PrivacyProfile():
            return _delta_on_curve(*_points(guarantee), epsilon)
        case _ if epsilon < 0:
            return float(_mirrored(-epsilon, _delta(guarantee, -epsilon)))
        case ZCDP(rho):
            return formulas.delta_from_zcdp(rho, epsilon)
        case GDP(mu):
            return formulas.delta_from_gdp(mu, epsilon)
        case RDP(alpha, divergence):
            return formulas.delta_from_rdp(alpha, divergence, epsilon)
    raise AssertionError(f"no curve for {guarantee!r}")


def _secret(guarantee: Any, p: float) -> SecretProtection:
    """r = sup{P(E): Q(E) ≤ p}."""
    validate.open_probability(p=p)
    match guarantee:
        case GDP(mu):
            r = gaussian_curve.blowup(mu, p).upper
        case ZCDP(rho):
            r = formulas.blowup_of_zcdp(rho, p)
        case RDP(alpha, divergence):
            r = formulas.blowup_of_rdp(alpha, divergence, p)
        case SecretProtection(at, known):
            r = formulas.blowup_at(p, at, known)
        case _:
            epsilons, deltas = _points(guarantee)
            with np.errstate(over="ignore"):
                r = float(((np.exp(epsilons) * p + deltas) * (1 + 16 * _UNIT)).min())
    return SecretProtection(p, min(max(r, p), 1.0))


def _points(guarantee: PureDP | ApproxDP | PrivacyProfile) -> tuple[Floats, Floats]:
    """All known points of the curve: (ε, δ), their mirror images, and δ = 1 at ε = −∞, by increasing ε."""
    match guarantee:
        case PureDP(epsilon):
            listed = [(epsilon, 0.0)]
        case ApproxDP(epsilon, delta):
            listed = [(epsilon, delta)]
        case PrivacyProfile(epsilons, deltas):
            listed = [(e, d) for e, d in zip(epsilons, deltas, strict=True) if d < 1]
    known = np.array(listed, dtype=np.float64).reshape(-1, 2)
    folded = known[known[:, 0] > -40]  # below −40, a δ under 1 is a rounding error
    images = np.stack([-folded[:, 0], _mirrored(folded[:, 0], folded[:, 1])], axis=1)
    everything = np.concatenate([[[-math.inf, 1.0]], known, images])
    epsilons, deltas = everything[np.argsort(everything[:, 0], kind="stable")].T
    return epsilons, deltas


def _mirrored(epsilon: Any, delta: Any) -> Any:
    """δ(−ε) = 1 − e^{−ε}(1 − δ(ε)), rounded up."""
    gain = -np.expm1(-np.asarray(epsilon, dtype=np.float64))
    return np.clip(delta + gain * (1 - delta) + 16 * _UNIT * (delta + np.abs(gain)), 0.0, 1.0)


def _delta_on_curve(epsilons: Floats, deltas: Floats, epsilon: float) -> float:
    """The least δ at ε on a chord, or at a point further left; the share of a chord's left end is linear in e^ε."""
    left, right = epsilons <= epsilon, epsilons > epsilon
    least = float(deltas[left].min())
    if right.any():
        ends = epsilons[right][None, :]
        share = np.expm1(epsilon - ends) / np.expm1(epsilons[left][:, None] - ends)
        chords = deltas[right] + np.maximum(deltas[left][:, None] - deltas[right], 0.0) * share
        least = min(least, float(chords.min()) * (1 + 32 * _UNIT) + 1e-320)  # a product may underflow
    return min(1.0, least)


def _epsilon_on_curve(epsilons: Floats, deltas: Floats, delta: float) -> float:
    """The least ε ≥ 0 with δ(ε) ≤ δ, at a point or on a chord from a point above δ to one at most δ; else inf."""
    low, high = deltas <= delta, deltas > delta
    if not low.any():
        return math.inf
    least = float(epsilons[low].min())
    above, below = np.nonzero(high)[0][:, None], np.nonzero(low)[0][None, :]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = (delta - deltas[below]) / (deltas[above] - deltas[below]) * (1 - 8 * _UNIT)
        fall = share * np.expm1(epsilons[above] - epsilons[below])  # e^ε is 1 + fall times that of the right end
        logs = np.log1p(fall)
        error = 32 * _UNIT * (np.abs(fall) / (1 + fall) + np.abs(logs) + np.abs(epsilons[below]))
        chords = np.where(epsilons[above] < epsilons[below], epsilons[below] + logs + error, math.inf)
    return max(0.0, min(least, float(np.where(np.isnan(chords), math.inf, chords).min(initial=math.inf))))


# Targets that are one number


def _renyi(guarantee: Any, alpha: float) -> RDP:
    RDP(alpha, 0.0)  # refuses an impossible order
    match guarantee:
        case PureDP(epsilon):
            return RDP(alpha, float(formulas.rdp_of_pure(epsilon, np.array(alpha))))
        case ZCDP(rho):
            return RDP(alpha, formulas.up(Fraction(rho) * Fraction(alpha)))
        case GDP(mu):
            return RDP(alpha, formulas.up(Fraction(mu) ** 2 * Fraction(alpha) / 2))
        case RDP(order, divergence) if alpha <= order:
            return RDP(alpha, divergence)
    raise ValueError(f"RDP of order {guarantee.alpha!r} gives no bound at the larger order {alpha!r}")


def _through_pure(to: Kind) -> Conversion:
    def conversion(guarantee: PrivacyProfile, argument: Any) -> Guarantee:
        pure = [e for e, d in zip(guarantee.epsilons, guarantee.deltas, strict=True) if d == 0]
        if not pure:
            raise ValueError(f"PrivacyProfile does not convert to {to.__name__} unless one of its δ is 0: {_INFINITE}")
        entry = TABLE[PureDP][to]
        assert not isinstance(entry, str)
        return entry(PureDP(pure[0]), argument)

    return conversion


_INFINITE = "with probability δ the loss may be infinite"
_NO_POINT = "one order bounds the tail of the loss by an exponential only"
_UNBOUNDED = "the loss may be arbitrarily large, with a small probability"
_EX_POST = "an ex-post ε holds for one input and one output only"
_ONE_POINT = "it bounds one event against one reference, in one direction only"

_OF_A_CURVE: Mapping[Kind, Conversion | str] = {
    ApproxDP: _approx,
    PrivacyProfile: _profile,
    SecretProtection: _secret,
}
_OF_DIVERGENCES: Mapping[Kind, Conversion | str] = {
    **_OF_A_CURVE,
    PureDP: _UNBOUNDED,
    RDP: _renyi,
    ExPostDP: _UNBOUNDED,
}
_OTHERS = (PureDP, RDP, ZCDP, GDP, ExPostDP)

TABLE: Mapping[Kind, Mapping[Kind, Conversion | str]] = {
    PureDP: {
        **_OF_A_CURVE,
        PureDP: lambda pure, _: pure,
        RDP: _renyi,
        ZCDP: lambda pure, _: ZCDP(formulas.zcdp_of_pure(pure.epsilon)),
        GDP: lambda pure, _: GDP(formulas.gdp_of_pure(pure.epsilon)),
        ExPostDP: lambda pure, _: ExPostDP(pure.epsilon),
    },
    ApproxDP: {**_OF_A_CURVE, **dict.fromkeys(_OTHERS, _INFINITE)},
    RDP: {**_OF_DIVERGENCES, ZCDP: _NO_POINT, GDP: _NO_POINT},
    ZCDP: {
        **_OF_DIVERGENCES,
        ZCDP: lambda zcdp, _: zcdp,
        GDP: lambda zcdp, _: GDP(formulas.gdp_of_zcdp(zcdp.rho)),
    },
    GDP: {
        **_OF_DIVERGENCES,
        ZCDP: lambda gdp, _: ZCDP(formulas.up(Fraction(gdp.mu) ** 2 / 2)),
        GDP: lambda gdp, _: gdp,
    },
    PrivacyProfile: {**_OF_A_CURVE, **{kind: _through_pure(kind) for kind in _OTHERS}},
    ExPostDP: {**dict.fromkeys((*_OF_A_CURVE, *_OTHERS), _EX_POST), ExPostDP: lambda ex_post, _: ex_post},
    SecretProtection: {**dict.fromkeys((*_OF_A_CURVE, *_OTHERS), _ONE_POINT), SecretProtection: _secret},
}
"""Kind of guarantee → wanted kind → the conversion, or the reason why there is none."""
