"""What one guarantee says of another: the implications that let a bound count for or against a claim.

Every implication here holds for every mechanism at one unit and adjacency. Where none is known, nothing follows.
"""

from __future__ import annotations

import math

from cupel.accounting import conversions
from cupel.accounting.bounds import Bound
from cupel.accounting.guarantees import (
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


def parameter(guarantee: Guarantee) -> float:
    """The claimed number that an upper bound must not exceed: ε (at its δ or order), ρ, μ or r."""
    match guarantee:
        case PureDP(epsilon) | ApproxDP(epsilon, _) | ExPostDP(epsilon) | RDP(_, epsilon):
            return epsilon
        case ZCDP(rho):
            return rho
        case GDP(mu):
            return mu
        case SecretProtection(_, r):
            return r
        case PrivacyProfile():
            raise ValueError("a privacy profile claims several numbers; take its points one by one")


def as_guarantee(upper: Bound) -> Guarantee | None:
    """The guarantee that an upper bound states; None for one that is vacuous or of a quantity that is no guarantee."""
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
        case "delta" if argument >= 0 and value < 1:
            return ApproxDP(argument, value) if value > 0 else PureDP(argument)
        case "renyi_epsilon":
            return RDP(argument, max(value, 0.0))
        case "r" if 0 < argument < 1:
            return SecretProtection(argument, min(max(value, argument), 1.0))
    return None


def upper_for(claim: Guarantee, upper: Bound) -> float:
    """What an upper bound proves of the number that is claimed; inf where nothing follows.

    Pure ε bounds every other currency. An ε at δ bounds the ε at any larger δ. ρ, μ and a Rényi divergence convert to
    an ε at δ > 0. A realised ex-post ε bounds nothing but an ex-post claim. A Rényi divergence bounds those of smaller
    orders, and an r bounds r at every other p, since r is concave in p.
    """
    proven = as_guarantee(upper)
    match claim, proven:
        case _, None:
            return math.inf
        case (PureDP() | ExPostDP(), PureDP(epsilon)) | (ExPostDP(), ExPostDP(epsilon)):
            return epsilon
        case ApproxDP(_, delta), _:
            return _epsilon_at(proven, delta)
        case (ZCDP(), ZCDP(value)) | (GDP(), GDP(value)):
            return value
        case RDP(alpha, _), RDP(order, divergence):
            return divergence if order >= alpha else math.inf
        case SecretProtection(p, _), SecretProtection(at, r):
            return conversions.blowup_at(p, at, r)
        case ZCDP(), PureDP(epsilon):
            return _zcdp_of_pure(epsilon)
        case ZCDP(), GDP(mu):
            return math.nextafter(mu * mu / 2 * (1 + 2.0**-52), math.inf)
        case GDP(), PureDP(epsilon):
            return conversions.gdp_of_pure(epsilon)
        case RDP(alpha, _), PureDP(epsilon):
            return float(conversions.rdp_of_pure(epsilon, alpha))  # type: ignore[arg-type]
        case RDP(alpha, _), ZCDP(rho):
            return math.nextafter(rho * alpha * (1 + 2.0**-52), math.inf)
    return math.inf


def implied_limit(claim: Guarantee, lower: Bound) -> float:
    """The largest value that a lower bound can truly have if the claim holds; inf where the claim says nothing of it.

    A lower bound on ε at δ refutes pure ε-DP and (ε, δ′)-DP for δ′ ≤ δ. A lower bound on one outcome's log-ratio
    (ex-post ε) refutes pure and ex-post claims only. ρ, μ and Rényi claims are held to the ε at δ > 0 they imply, and
    (p, r)-secret protection to the r it implies at the p of the bound.
    """
    match lower.quantity, claim:
        case "epsilon", PureDP() | ApproxDP() | ZCDP() | GDP() | RDP():
            return _epsilon_at(claim, lower.delta or 0.0)
        case "ex_post_epsilon", PureDP(epsilon) | ExPostDP(epsilon):
            return epsilon
        case ("rho", ZCDP(value)) | ("mu", GDP(value)):
            return value
        case "r", SecretProtection(p, r) if lower.at:
            return conversions.blowup_at(lower.at, p, r)
        case "rho", PureDP(epsilon):
            return _zcdp_of_pure(epsilon)
        case "mu", PureDP(epsilon):
            return conversions.gdp_of_pure(epsilon)
    return math.inf


def describe(guarantee: Guarantee) -> str:
    """The guarantee in words, parameters filled in."""
    match guarantee:
        case PureDP(epsilon):
            return f"pure differential privacy with ε = {epsilon:g}"
        case ApproxDP(epsilon, delta):
            return f"(ε, δ)-differential privacy with ε = {epsilon:g}, δ = {delta:.3g}"
        case ExPostDP(epsilon):
            return f"ex-post differential privacy with ε = {epsilon:g}"
        case ZCDP(rho):
            return f"zero-concentrated differential privacy with ρ = {rho:g}"
        case GDP(mu):
            return f"Gaussian differential privacy with μ = {mu:g}"
        case RDP(alpha, epsilon):
            return f"Rényi differential privacy with ε = {epsilon:g} at order {alpha:g}"
        case SecretProtection(p, r):
            return f"secret protection with p = {p:g}, r = {r:g}"
        case PrivacyProfile(epsilons, _):
            return f"a privacy profile of {len(epsilons)} points"


def _epsilon_at(guarantee: Guarantee, delta: float) -> float:
    """The least ε known to make every mechanism with this guarantee (ε, δ)-DP; inf if there is none."""
    match guarantee:
        case PureDP(epsilon):
            return epsilon
        case ApproxDP(epsilon, at):
            return epsilon if delta >= at else math.inf
        case ZCDP(rho) if delta > 0:
            return conversions.epsilon_from_zcdp(rho, delta)
        case GDP(mu) if delta > 0:
            return conversions.epsilon_from_gdp(mu, delta)
        case RDP(alpha, divergence) if delta > 0:
            return float(conversions.epsilon_from_rdp(alpha, divergence, delta))
    return math.inf


def delta_at(claim: Guarantee, upper: Bound) -> float:
    """What an upper bound proves of δ at the ε that pure or approximate DP claims; 1 where nothing follows."""
    epsilon = parameter(claim)
    match as_guarantee(upper):
        case PureDP(total):
            return conversions.delta_from_pure(total, epsilon)
        case ApproxDP(at, delta):
            return delta if at <= epsilon else 1.0
        case ZCDP(rho):
            return conversions.delta_from_zcdp(rho, epsilon)
        case GDP(mu):
            return conversions.delta_from_gdp(mu, epsilon)
        case RDP(alpha, divergence):
            return conversions.delta_from_rdp(alpha, divergence, epsilon)
    return 1.0


def _zcdp_of_pure(epsilon: float) -> float:
    """ε-DP is ε²/2-zCDP (Bun and Steinke 2016, Proposition 3.3), rounded up."""
    return math.nextafter(epsilon * epsilon / 2, math.inf)
