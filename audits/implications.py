"""Implications between guarantees, which decide whether a bound counts for or against a claim.

The conversions are those of `dpassay.accounting.conversions.guarantees`. They hold for every mechanism, at a fixed unit
and adjacency. Where no conversion is known, nothing follows.
"""

from __future__ import annotations

import math
from typing import Any

from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions.guarantees import convert
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
from dpassay.base.number_format import format_number, format_upper


def parameter(guarantee: Guarantee) -> float:
    """The claimed number that an upper bound must not exceed: ε (at its δ or order), ρ, μ, r, or the δ of one point.

    Raises:
        ValueError: if the guarantee is a privacy profile with several points, which claims several numbers.
    """
    match guarantee:
        case PureDP(epsilon) | ApproxDP(epsilon, _) | ExPostDP(epsilon) | RDP(_, epsilon):
            return epsilon
        case ZCDP(rho):
            return rho
        case GDP(mu):
            return mu
        case SecretProtection(_, r):
            return r
        case PrivacyProfile(_, (delta,)):
            return delta
    raise ValueError("a privacy profile with several points claims several numbers; pass one point at a time")


def as_guarantee(upper: Bound) -> Guarantee | None:
    """The guarantee that an upper bound states; None if it is vacuous or bounds a quantity without a guarantee."""
    if math.isinf(upper.value):
        return None
    match upper.quantity:
        case "epsilon" if upper.delta:
            return ApproxDP(upper.value, upper.delta) if upper.delta < 1 else None
        case "epsilon":
            return PureDP(upper.value)
        case "ex_post_epsilon":
            return ExPostDP(upper.value)
        case "rho":
            return ZCDP(upper.value)
        case "mu" if not upper.delta:
            return GDP(upper.value)
    return _at_argument(upper) if upper.at is not None else None


def _at_argument(upper: Bound) -> Guarantee | None:
    """The guarantee of a bound on a function of `at`: a δ at its ε, a divergence at its order, an r at its p."""
    argument, value = float(upper.at or 0.0), upper.value
    match upper.quantity:
        case "delta" if value < 1:
            # No mechanism has a smaller δ. A bound below it by more than rounding states nothing.
            least = -math.expm1(argument)
            return PrivacyProfile((argument,), (max(value, least, 0.0),)) if value >= least * (1 - 1e-12) else None
        case "renyi_epsilon":
            return RDP(argument, max(value, 0.0))
        case "r" if 0 < argument < 1:
            return SecretProtection(argument, min(max(value, argument), 1.0))
    return None


def implied_upper(claim: Guarantee, upper: Bound) -> float:
    """The upper bound on the claimed number that follows from an upper bound at the claim's unit and adjacency; inf if
    none follows. The claim is no privacy profile of several points."""
    proven = as_guarantee(upper)
    if proven is None:
        return math.inf
    match claim:
        case SecretProtection(p, _):  # its reference distribution is not a neighbour under the other guarantees
            return _number(proven, SecretProtection, p=p) if isinstance(proven, SecretProtection) else math.inf
        case ApproxDP(_, delta):
            return _number(proven, ApproxDP, delta=delta)
        case RDP(alpha, _):
            return _number(proven, RDP, alpha=alpha)
        case PrivacyProfile(epsilons, _):
            return _number(proven, PrivacyProfile, epsilons=epsilons)
    return _number(proven, type(claim))


def implied_limit(claim: Guarantee, lower: Bound) -> float:
    """The largest value that the bounded quantity can have if the claim holds; inf if the claim does not limit it.

    The claim is converted to the quantity of the bound: to an ε at the bound's δ, to a δ at its ε, to an r at its p.
    A lower bound on one outcome's log-ratio (ex-post ε) refutes pure and ex-post claims only.
    """
    match lower.quantity, claim:
        case "r", SecretProtection():
            return _number(claim, SecretProtection, p=lower.at)
        case _, SecretProtection():
            return math.inf
        case "epsilon", _ if lower.delta:
            return _number(claim, ApproxDP, delta=lower.delta)
        case "epsilon", _:
            return _number(claim, PureDP)
        case "ex_post_epsilon", _:
            return _number(claim, ExPostDP)
        case "rho", _:
            return _number(claim, ZCDP)
        case "mu", _:
            return _number(claim, GDP)
        case "renyi_epsilon", _:
            return _number(claim, RDP, alpha=lower.at)
        case "delta", _ if lower.at is not None:
            return _number(claim, PrivacyProfile, epsilons=(lower.at,))
    return math.inf


AUDITED_DELTA = 1e-5
"""δ at which audits bound ε, where a claim is no ε at a δ of its own."""


def epsilon_to_audit(claim: Guarantee) -> tuple[float, float | None]:
    """δ at which an audit that bounds ε tests a claim, and the ε that the claim implies there; None if it implies none.

    A claim in μ, ρ or Rényi ε limits no ε at δ = 0, so that no bound there could contradict it.
    """
    match claim:
        case PureDP(epsilon):
            return 0.0, epsilon
        case ApproxDP(epsilon, delta):
            return delta, epsilon
        case SecretProtection() | ExPostDP():
            return 0.0, None
    implied = _number(claim, ApproxDP, delta=AUDITED_DELTA)
    return AUDITED_DELTA, implied if implied < math.inf else None


def _number(guarantee: Guarantee, kind: type[Any], **argument: Any) -> float:
    """The number of the strongest guarantee of this kind that follows; inf if none follows, or only δ = 1."""
    try:
        value = parameter(convert(guarantee, kind, **argument))
    except ValueError:
        return math.inf
    return math.inf if kind is PrivacyProfile and value >= 1 else value


def describe_limit(claim: Guarantee, limit: float) -> str:
    """The limit as text: unchanged if the claim states it, rounded up if it follows from the claim."""
    stated = (*claim.epsilons, *claim.deltas) if isinstance(claim, PrivacyProfile) else (parameter(claim),)
    return format_number(limit) if limit in stated else format_upper(limit)


def describe(guarantee: Guarantee) -> str:
    """The guarantee in words, with its parameters."""
    match guarantee:
        case PureDP(epsilon):
            return f"pure differential privacy with ε = {format_number(epsilon)}"
        case ApproxDP(epsilon, delta):
            return f"(ε, δ)-differential privacy with ε = {format_number(epsilon)}, δ = {format_number(delta)}"
        case ExPostDP(epsilon):
            return f"ex-post differential privacy with ε = {format_number(epsilon)}"
        case ZCDP(rho):
            return f"zero-concentrated differential privacy with ρ = {format_number(rho)}"
        case GDP(mu):
            return f"Gaussian differential privacy with μ = {format_number(mu)}"
        case RDP(alpha, epsilon):
            return f"Rényi differential privacy with ε = {format_number(epsilon)} at order {format_number(alpha)}"
        case SecretProtection(p, r):
            return f"secret protection with p = {format_number(p)}, r = {format_number(r)}"
        case PrivacyProfile(epsilons, _):
            return f"a privacy profile of {len(epsilons)} points"
